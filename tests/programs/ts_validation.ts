// Validates requests with zod: defaults, nested errors, a union, and types inferred from the schema.
// prints: Valid: 2 of 4
// prints: items.0.quantity: Number must be greater than 0
import { z } from 'zod';

const Payment = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('card'), last4: z.string().regex(/^\d{4}$/) }),
  z.object({ kind: z.literal('transfer'), iban: z.string().min(15) }),
]);
const Order = z.object({
  id: z.string().uuid(),
  email: z.string().email().transform((value) => value.toLowerCase()),
  items: z.array(z.object({ sku: z.string(), quantity: z.number().int().positive() })).min(1),
  payment: Payment,
  express: z.boolean().default(false),
});
type Order = z.infer<typeof Order>;

const id = '4b1f4dc0-8f6e-4d2a-9d5c-5a2f3a0c9e11';
const requests: unknown[] = [
  { id, email: 'Ada@Example.org', items: [{ sku: 'A1', quantity: 2 }], payment: { kind: 'card', last4: '4242' } },
  { id, email: 'bob@example.org', items: [{ sku: 'B2', quantity: 0 }], payment: { kind: 'card', last4: '1111' } },
  { id: 'not-an-id', email: 'nobody', items: [], payment: { kind: 'cash' } },
  { id, email: 'eve@example.org', items: [{ sku: 'C3', quantity: 1 }], payment: { kind: 'transfer', iban: 'DE02120300000000202051' }, express: true },
];
const valid: Order[] = [];
requests.forEach((request, index) => {
  const parsed = Order.safeParse(request);
  if (parsed.success) valid.push(parsed.data);
  else {
    console.log(`Request ${index}:`);
    for (const issue of parsed.error.errors) console.log(`${issue.path.join('.')}: ${issue.message}`);
  }
});
console.log(`Valid: ${valid.length} of ${requests.length}`);
console.log(valid.map((order) => `${order.email} express=${order.express}`).join('\n'));
