// What the warm part transpiles and runs before it forks (warm.cjs): a little of everything that TypeScript adds. It has no
// effect.
enum Kind { A }
const mark = (..._about: unknown[]): void => {};
interface Named { name: string }
@mark class Box<T extends Named> {
  constructor(private readonly inner: T) {}
  @mark get(n: number): Kind { return n > 1 && this.inner.name !== '' ? Kind.A : Kind.A; }
}
const found = [new Box<Named>({ name: 'a' })].map((box) => `${box.get(2)}`).filter(Boolean);
JSON.parse(JSON.stringify({ found }));
