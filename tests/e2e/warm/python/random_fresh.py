# Two children of the same parent would draw the same: every source is fresh, and a seed is a seed.
import random, numpy as np, uuid, secrets, os, tempfile, hashlib, json
draws = [random.random(), float(np.random.rand()), str(uuid.uuid4()), secrets.token_hex(8), os.urandom(4).hex(), float(np.random.default_rng().random()), next(tempfile._get_candidate_names())]
seen = '/tmp/draws.json'
before = json.load(open(seen)) if os.path.exists(seen) else []
print([d in before for d in draws])
json.dump(before + draws, open(seen, 'w'))
random.seed(1); np.random.seed(1)
print(random.random(), np.random.rand(2), np.random.randn(2), np.random.default_rng(1).random(), random.gauss(0, 1))
print(hash(1), hash(1.5), hash((1, 2)), hashlib.sha256(b'x').hexdigest())
