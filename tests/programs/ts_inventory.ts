// Models an inventory with classes, generics, enums and private fields, and prints a table.
// prints: Low stock: Cable, Mouse
// prints: Stock is worth 2,219.50 €
enum Kind {
  Hardware = 'hardware',
  Accessory = 'accessory',
}

interface Stocked {
  readonly name: string;
  readonly price: number;
}

abstract class Product implements Stocked {
  static #count = 0;
  readonly id = ++Product.#count;
  constructor(readonly name: string, readonly price: number, readonly kind: Kind) {}
  abstract get minimum(): number;
  toString() {
    return `${this.id}. ${this.name} (${this.kind})`;
  }
}
class Device extends Product {
  constructor(name: string, price: number, public warranty = 24) {
    super(name, price, Kind.Hardware);
  }
  get minimum() {
    return 1;
  }
}
class Accessory extends Product {
  constructor(name: string, price: number) {
    super(name, price, Kind.Accessory);
  }
  get minimum() {
    return 20;
  }
}

class Inventory<T extends Product> {
  readonly #stock = new Map<T, number>();
  add(product: T, quantity: number): this {
    this.#stock.set(product, (this.#stock.get(product) ?? 0) + quantity);
    return this;
  }
  *low(): Generator<T> {
    for (const [product, quantity] of this.#stock) if (quantity < product.minimum) yield product;
  }
  get value(): number {
    return [...this.#stock].reduce((sum, [product, quantity]) => sum + product.price * quantity, 0);
  }
  table() {
    return [...this.#stock].map(([product, quantity]) => ({ product: `${product}`, quantity, price: product.price }));
  }
}

const inventory = new Inventory<Product>()
  .add(new Device('Laptop', 989), 2)
  .add(new Accessory('Cable', 4.5), 13)
  .add(new Accessory('Mouse', 18.3), 10);
console.table(inventory.table());
console.log('Low stock:', [...inventory.low()].map((product) => product.name).join(', '));
console.log(`Stock is worth ${inventory.value.toLocaleString('en', { minimumFractionDigits: 2 })} €`);
