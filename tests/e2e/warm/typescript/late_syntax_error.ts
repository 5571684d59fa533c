// Code that swc takes and V8 refuses.
let twice = 1;
console.log('never');
var undefined_label = 2;
break_out: for (;;) { break nowhere; }
