# unittest on the program itself.
import unittest
class T(unittest.TestCase):
    def test_ok(self): self.assertEqual(1, 1)
    def test_bad(self): self.assertEqual({'a': 1}, {'a': 2})
    @unittest.skip('why')
    def test_skip(self): pass
if __name__ == '__main__':
    import sys, io, re
    out = io.StringIO()
    r = unittest.TextTestRunner(out, verbosity=2).run(unittest.defaultTestLoader.loadTestsFromName('__main__'))
    print(re.sub(r'in \d+\.\d+s', 'in 0s', out.getvalue()))
    class Quiet(unittest.TextTestRunner):
        def __init__(self, **k): super().__init__(stream=io.StringIO(), verbosity=0)
    unittest.main(testRunner=Quiet)
