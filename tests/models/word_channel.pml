/*
 * Shared memory as one remote reader sees it, used by all three models.
 *
 * Every (word, reader) pair is a FIFO of the stores that this reader may still observe, oldest first, packed into one integer, five bits an
 * entry, 0 = no entry. SEEN is the value that the reader has reached; a later entry is a store that was issued and that the reader may
 * observe at any time, or not yet. The FIFOs of different words are independent, and that is the whole weakness of this memory:
 *
 *   - stores of one rank to different words reach a reader in any order, and different readers in different orders;
 *   - stores to one word reach it in the order in which they were issued, and it never steps back (coherence);
 *   - a load takes SEEN or any later entry: it may be stale as long as no happens-before edge forbids that;
 *   - an acquire that reads a release forgets every entry that the release ordered behind a newer one.
 *
 * Since a store may be observed arbitrarily late, issuing all the stores of a duty in one step loses no behaviour.
 */

#define ENTRY_BITS 5
#define ENTRY_MASK 31
#define SEEN(fifo) ((fifo) & ENTRY_MASK)
#define NEXT(fifo) (((fifo) >> ENTRY_BITS) & ENTRY_MASK)
#define MORE(fifo) ((fifo) > ENTRY_MASK)
#define REST(fifo) ((fifo) >> ENTRY_BITS)

/* Scratch of the deterministic steps: never part of a state. */
hidden byte i, p, r, s, w, shift;

/* False = the model, not the protocol, is at fault: CHANNEL_DEPTH is too small. */
bit channel_is_deep_enough = 1;

inline append(fifo, entry) {
  shift = 0;
  do
  :: shift < CHANNEL_DEPTH && ((fifo) >> (ENTRY_BITS * shift)) != 0 -> shift++
  :: else -> break
  od;
  channel_is_deep_enough = (shift < CHANNEL_DEPTH);
  assert(channel_is_deep_enough);
  fifo = fifo | ((entry) << (ENTRY_BITS * shift));
  shift = 0
}
