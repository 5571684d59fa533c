// Works through jobs with a queue of three workers, with retries and a timeout.
// prints: Done: 9, failed: 1, retries: 3
// prints: Never more than 3 at a time: true
type Job = { id: number; run: (attempt: number) => Promise<string> };

const sleep = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

class Queue {
  private running = 0;
  most = 0;
  retries = 0;
  private readonly waiting: (() => void)[] = [];

  constructor(private readonly limit: number, private readonly attempts = 3) {}

  private async enter() {
    if (this.running >= this.limit) await new Promise<void>((resolve) => this.waiting.push(resolve));
    this.running++;
    this.most = Math.max(this.most, this.running);
  }

  private leave() {
    this.running--;
    this.waiting.shift()?.();
  }

  async add(job: Job): Promise<string> {
    await this.enter();
    try {
      for (let attempt = 1; ; attempt++) {
        try {
          return await Promise.race([job.run(attempt), sleep(2000).then(() => Promise.reject(new Error('timeout')))]);
        } catch (error) {
          if (attempt === this.attempts) throw error;
          this.retries++;
          await sleep(2 ** attempt);
        }
      }
    } finally {
      this.leave();
    }
  }
}

const queue = new Queue(3);
const jobs: Job[] = Array.from({ length: 10 }, (_, id) => ({
  id,
  run: async (attempt) => {
    await sleep(2);
    if (id === 4 || (id === 7 && attempt === 1)) throw new Error(`job ${id}, attempt ${attempt}`);
    return `job ${id}`;
  },
}));
const results = await Promise.allSettled(jobs.map((job) => queue.add(job)));
const done = results.filter((result) => result.status === 'fulfilled');
for (const result of results) if (result.status === 'rejected') console.log('Failed:', result.reason.message);
console.log(`Done: ${done.length}, failed: ${results.length - done.length}, retries: ${queue.retries}`);
console.log(`Never more than 3 at a time: ${queue.most <= 3}`);
process.exit(0);
