# An audit hook sees what the program does.
import sys
seen = []
sys.addaudithook(lambda event, args: seen.append(event))
open('/data/x', 'w').close(); exec('1'); __import__('os').listdir('/data')
print([e for e in seen if e in ('open', 'exec', 'os.listdir', 'compile')])
def quiet(event, args):
    if event == 'sys.excepthook': print('about to print an error')
sys.addaudithook(quiet)
1 / 0
