# exec, eval, compile, code objects, inspection of them.
ns = {}
exec('import sys\nx = [i for i in range(3)]\ndef f(): return sys._getframe().f_globals is globals()', ns)
print(ns['x'], ns['f'](), list(ns))
print(eval('__name__'), eval('x', {'x': 1}), [*map(eval, ['1+1', 'len("ab")'])])
exec('y = 5'); print(y)
import dis, ast, code
print(ast.unparse(ast.parse('a=1')), compile('1', 'f', 'eval').co_filename)
dis.dis(lambda x: x + 1)
code.InteractiveInterpreter({}).runsource('print("interactive")')
exec('raise KeyError(1)')
