/*
 * Flagged one-shot: two slots by call parity, a release flag and a fingerprint a block, acquire before reading.
 *
 * Unbounded, in the same frame as sentinel_slots.pml: calls are counted relative to the slowest rank, which is always in call NOW.
 * The size of a call is a number of blocks with data, drawn freely from 0 .. BLOCKS; a call of size 0 still runs block 0, which carries
 * flag and fingerprint and no data. A block has two threads, one word each. Blocks of a rank run side by side; within a block, posting and
 * reading do too (the code is stricter: it posts first).
 *
 * Mutants, as macros: SLOTS = 1, RELAXED_FLAG, NO_ACQUIRE (the reader waits, but the load orders nothing), NO_WAIT, FLAG_BEFORE_DATA,
 * FENCE_BEFORE_BARRIER (the flag covers what its own thread stored, not the block's other threads), ONE_FINGERPRINT (no parity),
 * SKIP_EMPTY_CALLS (a call of size 0 exchanges nothing).
 * VALUES_ONLY: judge by what is read alone, not by the order of events. PROGRESS: for the search for cycles in which no call ends.
 */

#ifndef RANKS
#define RANKS 2
#endif
#ifndef BLOCKS
#define BLOCKS 2
#endif

#ifndef SLOTS
#define SLOTS 2
#endif

#define PEERS (RANKS - 1)
#define THREADS 2
#define CHANNEL_DEPTH 3
#include "word_channel.pml"

/* An entry is what a call stored, the first word of every slot being older than all calls. */
#define STORED(call) ((call) + 1)
#define CALL_OF(entry) ((entry) - 1)

#define NOW 9
#define PARITY(call) (((call) + 10 - NOW) % 2)
#if SLOTS == 2
#define SLOT_OF(call) PARITY(call)
#else
#define SLOT_OF(call) 0
#endif
#ifdef ONE_FINGERPRINT
#define LINE_OF(call) 0
#else
#define LINE_OF(call) PARITY(call)
#endif

/* Reader `reader` has its peers numbered 0 .. PEERS - 1. */
#define RANK_OF(reader, peer) (((reader) + 1 + (peer)) % RANKS)
#define PEER_OF(reader, rank) (((rank) + RANKS - (reader) - 1) % RANKS)
#define WORD(reader, peer, block, thread, slot) word[((((reader) * PEERS + (peer)) * BLOCKS + (block)) * THREADS + (thread)) * 2 + (slot)]
#define PRINT(reader, peer, block, line) fingerprint[(((reader) * PEERS + (peer)) * BLOCKS + (block)) * 2 + (line)]
#define FLAG(rank, block, parity) flag[((rank) * BLOCKS + (block)) * 2 + (parity)]

short word[RANKS * PEERS * BLOCKS * THREADS * 2] = STORED(0);
short fingerprint[RANKS * PEERS * BLOCKS * 2] = STORED(0);
byte flag[RANKS * BLOCKS * 2];
byte call[RANKS] = NOW;
byte known[RANKS] = NOW - 1;      /* every peer's calls up to this one happen before the rank's current call */
byte size[2];                     /* blocks with data in the calls NOW and NOW + 1 */
byte drawn = NOW - 1;
short todo[RANKS];
hidden short saved;

bit no_stale_read = 1, no_overwrite_of_unread = 1, fingerprint_of_this_call = 1, ranks_one_call_apart = 1;

#define DUTIES (2 + 2 * PEERS)
#define POST(block) (1 << ((block) * DUTIES))
#define RAISE(block) (2 << ((block) * DUTIES))
#define ACQUIRE(block, peer) (4 << ((block) * DUTIES + 2 * (peer)))
#define READ(block, peer) (8 << ((block) * DUTIES + 2 * (peer)))
#define DUE(duty) ((todo[me] & (duty)) != 0)
#define DONE(duty) todo[me] = todo[me] & ~(duty)

#ifdef FLAG_BEFORE_DATA
#define MAY_POST(block) !DUE(RAISE(block))
#define MAY_RAISE(block) true
#else
#define MAY_POST(block) true
#define MAY_RAISE(block) !DUE(POST(block))
#endif

#ifdef NO_WAIT
#define IS_RAISED(block, peer) true
#else
#define IS_RAISED(block, peer) (FLAG(RANK_OF(me, peer), block, PARITY(call[me])) >= call[me])
#endif

#if defined(RELAXED_FLAG) || defined(NO_ACQUIRE) || defined(NO_WAIT)
#define ORDERED 0
#else
#define ORDERED 1
#endif

/* The newest call whose stores a flag of this call orders before itself, for the words of each thread of the block and its fingerprint. */
#ifdef FLAG_BEFORE_DATA
#define COVERED(thread) (call[me] - 1)
#elif defined(FENCE_BEFORE_BARRIER)
#define COVERED(thread) (call[me] - (thread))
#else
#define COVERED(thread) call[me]
#endif

inline forget(fifo, newest) {
  do
  :: MORE(fifo) && CALL_OF(NEXT(fifo)) <= newest -> fifo = REST(fifo)
  :: else -> break
  od
}

inline enter_call() {
  ranks_one_call_apart = (call[me] <= NOW + 1);
  assert(ranks_one_call_apart);
  if
  :: call[me] > drawn ->
     drawn++;
     if
     :: size[call[me] - NOW] = 0
     :: size[call[me] - NOW] = 1
     :: BLOCKS > 1 -> size[call[me] - NOW] = 2
     fi
  :: else
  fi;
#ifdef SKIP_EMPTY_CALLS
  if
  :: size[call[me] - NOW] == 0 -> todo[me] = 0
  :: else -> todo[me] = (size[call[me] - NOW] > 1 -> (1 << (2 * DUTIES)) - 1 : (1 << DUTIES) - 1)
  fi
#else
  todo[me] = (size[call[me] - NOW] > 1 -> (1 << (2 * DUTIES)) - 1 : (1 << DUTIES) - 1)
#endif
}

inline post(block) {
#ifndef VALUES_ONLY
  no_overwrite_of_unread = (known[me] + SLOTS >= call[me]);
  assert(no_overwrite_of_unread);
#endif
  r = 0;
  do
  :: r < RANKS && r == me -> r++
  :: r < RANKS && r != me ->
     w = 0;
     do
     :: w < THREADS && block < size[call[me] - NOW] -> append(WORD(r, PEER_OF(r, me), block, w, SLOT_OF(call[me])), STORED(call[me])); w++
     :: else -> break
     od;
     append(PRINT(r, PEER_OF(r, me), block, LINE_OF(call[me])), STORED(call[me]));
     r++
  :: else -> break
  od
}

inline acquire(block, peer) {
  if
  :: ORDERED ->
     forget(PRINT(me, peer, block, LINE_OF(call[me])), COVERED(0));
     forget(WORD(me, peer, block, 0, SLOT_OF(call[me])), COVERED(0));
     forget(WORD(me, peer, block, 1, SLOT_OF(call[me])), COVERED(1))
  :: else
  fi
}

/* A plain load takes any entry that it may observe: all of them have to be right. */
inline read(block, peer) {
  no_stale_read = (block >= size[call[me] - NOW] ||
                   WORD(me, peer, block, 0, SLOT_OF(call[me])) == STORED(call[me]) && WORD(me, peer, block, 1, SLOT_OF(call[me])) == STORED(call[me]));
  assert(no_stale_read);
  fingerprint_of_this_call = (PRINT(me, peer, block, LINE_OF(call[me])) == STORED(call[me]));
  assert(fingerprint_of_this_call)
}

/* The kernel boundary. A flag of this call, of any block, says that the peer's call before it is over. */
inline leave_call() {
  if
  :: ORDERED -> known[me] = call[me] - 1
  :: else
  fi;
  s = 0;
  do
  :: s < PEERS * BLOCKS * THREADS * 2 -> forget(WORD(me, 0, 0, 0, s), known[me]); s++
  :: else -> break
  od;
  s = 0;
  do
  :: s < PEERS * BLOCKS * 2 -> forget(PRINT(me, 0, 0, s), known[me]); s++
  :: else -> break
  od;
  call[me]++;
  r = 0;
  do
  :: r < RANKS && call[r] > NOW -> r++
  :: else -> break
  od;
  if
  :: r == RANKS -> rebase()
  :: else
  fi
}

/* All calls of a FIFO become one older; what is older than call 0 counts as call 0. */
inline grow_older(fifo) {
  shift = 0;
  do
  :: shift < CHANNEL_DEPTH ->
     if
     :: ((fifo >> (ENTRY_BITS * shift)) & ENTRY_MASK) > STORED(0) -> fifo = fifo - (1 << (ENTRY_BITS * shift))
     :: else
     fi;
     shift++
  :: else -> break
  od;
  shift = 0
}

/* Every rank has left call NOW: the call after it becomes NOW, and the parities swap. */
inline rebase() {
  drawn--;
  size[0] = size[1]; size[1] = 0;
  r = 0;
  do
  :: r < RANKS ->
     call[r]--;
     if :: known[r] > 0 -> known[r]-- :: else fi;
     r++
  :: else -> break
  od;
  s = 0;
  do
  :: s < RANKS * BLOCKS ->
     saved = flag[2 * s];
     flag[2 * s] = (flag[2 * s + 1] > 0 -> flag[2 * s + 1] - 1 : 0);
     flag[2 * s + 1] = (saved > 0 -> saved - 1 : 0);
     s++
  :: else -> break
  od;
  s = 0;
  do
  :: s < RANKS * PEERS * BLOCKS * THREADS ->
     grow_older(word[2 * s]);
     grow_older(word[2 * s + 1]);
     if
     :: SLOTS == 2 -> saved = word[2 * s]; word[2 * s] = word[2 * s + 1]; word[2 * s + 1] = saved
     :: else
     fi;
     s++
  :: else -> break
  od;
  s = 0;
  do
  :: s < RANKS * PEERS * BLOCKS ->
     grow_older(fingerprint[2 * s]);
     grow_older(fingerprint[2 * s + 1]);
#ifndef ONE_FINGERPRINT
     saved = fingerprint[2 * s]; fingerprint[2 * s] = fingerprint[2 * s + 1]; fingerprint[2 * s + 1] = saved;
#endif
     s++
  :: else -> break
  od
}

#define DUTIES_OF(block) \
  :: d_step { DUE(POST(block)) && MAY_POST(block) -> post(block); DONE(POST(block)) } \
  :: d_step { DUE(RAISE(block)) && MAY_RAISE(block) -> FLAG(me, block, PARITY(call[me])) = call[me]; DONE(RAISE(block)) }
#define DUTIES_TOWARDS(block, peer) \
  :: d_step { DUE(ACQUIRE(block, peer)) && IS_RAISED(block, peer) -> acquire(block, peer); DONE(ACQUIRE(block, peer)) } \
  :: d_step { DUE(READ(block, peer)) && !DUE(ACQUIRE(block, peer)) -> read(block, peer); DONE(READ(block, peer)) }

proctype rank(byte me) {
  atomic { enter_call() };
  do
  DUTIES_OF(0)
  DUTIES_TOWARDS(0, 0)
#if RANKS > 2
  DUTIES_TOWARDS(0, 1)
#endif
#if BLOCKS > 1
  DUTIES_OF(1)
  DUTIES_TOWARDS(1, 0)
#if RANKS > 2
  DUTIES_TOWARDS(1, 1)
#endif
#endif
#ifdef PROGRESS
  :: d_step { todo[me] == 0 -> leave_call() };
     progress_next_call: atomic { enter_call() }
#else
  :: atomic { todo[me] == 0 -> d_step { leave_call() }; enter_call() }
#endif
  od
}

init {
  atomic {
    i = 0;
    do
    :: i < RANKS -> run rank(i); i++
    :: else -> break
    od
  }
}
