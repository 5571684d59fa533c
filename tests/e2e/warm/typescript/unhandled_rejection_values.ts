// A rejection with something that is no error.
Promise.reject({ code: 'E_PLAIN', list: [1] });
process.on('exit', (code) => console.log('exit', code));
