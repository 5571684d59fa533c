// An error that nobody catches: the text, the frames, the line that was written, the exit code.
interface Order { id: number; items: string[] }


class OrderError extends Error {
  constructor(message: string, readonly code: string, options?: ErrorOptions) { super(message, options); this.name = 'OrderError'; }
}
function total(order: Order): number {
  if (order.items.length === 0) throw new OrderError(`order ${order.id} is empty`, 'EMPTY', { cause: new RangeError('no items') });
  return order.items.length;
}
console.log(new Error('seen').stack);
console.error('before');
console.log(total({ id: 7, items: [] }));
