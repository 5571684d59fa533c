# csv, json, zip, tar, paths, hashes.
import csv, json, zipfile, tarfile, io, pathlib, hashlib, base64, struct, shutil, glob, os
p = pathlib.Path('/data'); (p / 'd').mkdir(); (p / 'd' / 'a.txt').write_text('é\n')
with open(p / 'x.csv', 'w', newline='') as f: w = csv.DictWriter(f, ['a', 'b']); w.writeheader(); w.writerow({'a': 1, 'b': 'x,"y"'})
print(list(csv.DictReader(open(p / 'x.csv'))), csv.list_dialects())
with zipfile.ZipFile('/tmp/z.zip', 'w', zipfile.ZIP_DEFLATED) as z: z.write(p / 'x.csv', 'x.csv')
print(zipfile.ZipFile('/tmp/z.zip').namelist(), sorted(map(str, p.rglob('*'))), glob.glob('/data/*.csv'))
with tarfile.open('/tmp/t.tar.gz', 'w:gz') as t: t.add(p / 'd', 'd')
print(tarfile.open('/tmp/t.tar.gz').getnames(), json.dumps({'k': [1, None, True, 'é']}, indent=1, ensure_ascii=False), hashlib.md5(b'x').hexdigest(), base64.b64encode(b'x'), struct.pack('<I', 5))
shutil.copytree('/data/d', '/data/e'); print(os.path.getsize('/data/e/a.txt'))
print(json.loads('{bad'))
