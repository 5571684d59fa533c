// The cluster module, which is fork underneath.
import cluster from 'node:cluster';
if (cluster.isPrimary) {
  console.log(cluster.settings, process.listenerCount('message'));
  for (let i = 0; i < 2; i++) cluster.fork({ NUMBER: String(i) });
  const seen: string[] = [];
  cluster.on('message', (_, message) => seen.push(message));
  let left = 2;
  cluster.on('exit', (_, code) => { seen.push(`exit ${code}`); if (--left === 0) console.log(seen.sort(), cluster.settings.exec); });
} else {
  process.send!(`worker ${process.env.NUMBER} ${cluster.isWorker}`, () => process.exit(Number(process.env.NUMBER)));
}
