/*
 * Bulk: a message flows through bounded rings of DEPTH chunks, one a (rank, block), with ready and consumed counts that never restart.
 *
 * Bounded: CALLS calls, each of 1 .. MAX_CHUNKS chunks in block 0 and 0 .. MAX_CHUNKS in block 1, drawn freely; the rings wrap several
 * times. Writers and readers of a rank (a writer a block, a reader a block and peer) are processes of their own, joined at the end of each
 * call by the kernel boundary.
 *
 * Mutants, as macros: NO_REUSE_WAIT, OFF_BY_ONE, ONE_READER (with RANKS = 3: the writer waits for one of its readers), RELAXED_READY,
 * RELAXED_CONSUMED, CONSUMED_BEFORE_READ, RESTART_COUNTERS, ONE_FINGERPRINT (no parity), EMPTY_CALLS (block 0 may have no chunk),
 * SERIAL (readers start when the writers are through), KNOWN_TOO_EARLY (a rank takes its last call for consumed), NOT_ON_ENTRY (no
 * acknowledgement of earlier calls), ACKNOWLEDGE_SHORT (the last chunk that a call needs again is not acknowledged). VALUES_ONLY: judge by what is read alone, not by the order of events.
 */

#ifndef RANKS
#define RANKS 2
#endif
#ifndef BLOCKS
#define BLOCKS 1
#endif
#ifndef CALLS
#define CALLS 4
#endif
#ifndef DEPTH
#define DEPTH 2
#endif
#ifndef MAX_CHUNKS
#define MAX_CHUNKS (DEPTH + 1)
#endif

#define PEERS (RANKS - 1)
#define WORDS 2
#define CHANNEL_DEPTH 6
#include "word_channel.pml"

/* An entry is a chunk, or the call of a fingerprint; chunks count from 0, calls from 1, over the whole run; 1 is the start state. */
#define CHUNK(id) ((id) + 2)
#define CALL(k) ((k) + 1)

/* Reader `reader` has its peers numbered 0 .. PEERS - 1. A link is what one of its blocks reads from one of them. */
#define RANK_OF(reader, peer) (((reader) + 1 + (peer)) % RANKS)
#define PEER_OF(reader, rank) (((rank) + RANKS - (reader) - 1) % RANKS)
#define LINK(reader, peer, b) (((reader) * PEERS + (peer)) * BLOCKS + (b))
#define WORD(link, place, w) word[((link) * DEPTH + (place)) * WORDS + (w)]
#ifdef ONE_FINGERPRINT
#define PRINT(link, k) fingerprint[(link) * 2]
#else
#define PRINT(link, k) fingerprint[(link) * 2 + (k) % 2]
#endif
#define AT(rank, b) ((rank) * BLOCKS + (b))

int word[RANKS * PEERS * BLOCKS * DEPTH * WORDS] = 1;
int fingerprint[RANKS * PEERS * BLOCKS * 2] = 1;
byte ready[RANKS * BLOCKS];
byte consumed[RANKS * PEERS * BLOCKS];      /* by link */
byte known_read[RANKS * PEERS * BLOCKS];    /* by link: its reads of chunks below this one happen before what the writer does next */
byte call[RANKS];
byte first[RANKS * BLOCKS], limit[RANKS * BLOCKS];    /* chunks of the rank's current call */
byte before[RANKS * BLOCKS];                /* first of the rank's last call: all below is known to be consumed */
byte chunks[(CALLS + 2) * BLOCKS];          /* one more than the chunks of a call, 0 = not drawn yet, or over on every rank */
byte finished[RANKS];

bit no_stale_read = 1, no_overwrite_of_unread = 1, fingerprint_of_this_call = 1, ranks_one_call_apart = 1, every_call_ends = 1;

/* What a counter holds for a chunk, and the chunk's place in the ring. */
#ifdef RESTART_COUNTERS
#define COUNT(id) ((id) - first[AT(me, block)])
#else
#define COUNT(id) (id)
#endif
#define PLACE(id) (COUNT(id) % DEPTH)

#ifdef EMPTY_CALLS
#define LEAST(b) 0
#else
#define LEAST(b) (1 - (b))
#endif
#ifdef ONE_READER
#define READERS_WAITED_FOR 1
#else
#define READERS_WAITED_FOR PEERS
#endif
#ifdef OFF_BY_ONE
#define ROOM (DEPTH + 1)
#else
#define ROOM DEPTH
#endif
#define LINK_TO(peer) LINK(RANK_OF(me, peer), PEER_OF(RANK_OF(me, peer), me), block)
#ifdef RESTART_COUNTERS
#define KNOWS_ROOM false
#else
#define KNOWS_ROOM (n < before[AT(me, block)] + ROOM)
#endif
#ifdef NO_REUSE_WAIT
#define HAS_ROOM(peer) true
#else
#define HAS_ROOM(peer) ((peer) >= READERS_WAITED_FOR || KNOWS_ROOM || consumed[LINK_TO(peer)] + ROOM > COUNT(n))
#endif
#if RANKS > 2
#define ALL_PEERS(x) (x(0) && x(1))
#else
#define ALL_PEERS(x) x(0)
#endif

#ifdef RELAXED_READY
#define READY_ORDERS 0
#else
#define READY_ORDERS 1
#endif
#if defined(RELAXED_CONSUMED) || defined(NO_REUSE_WAIT)
#define CONSUMED_ORDERS 0
#else
#define CONSUMED_ORDERS 1
#endif

inline forget(fifo, newest) {
  do
  :: MORE(fifo) && NEXT(fifo) <= newest -> fifo = REST(fifo)
  :: else -> break
  od
}

/* Ends the call for one process of the rank; the last one is the kernel boundary and enters the next call. */
inline finish() {
  finished[me]++;
  if
  :: finished[me] == (1 + PEERS) * BLOCKS -> finished[me] = 0; enter_call()
  :: else
  fi
}

inline enter_call() {
  d_step {
    /* A peer that released a chunk of the call that ends here had ended the call before it, reads included. */
    p = 0;
    do
    :: p < PEERS ->
       s = 0;
       do
       :: s < BLOCKS ->
          w = LINK(RANK_OF(me, p), PEER_OF(RANK_OF(me, p), me), s);
          if
          :: READY_ORDERS && known_read[w] < first[AT(me, s)] -> known_read[w] = first[AT(me, s)]
          :: else
          fi;
          s++
       :: else -> break
       od;
       p++
    :: else -> break
    od;
    call[me]++;
    r = 0;
    do
    :: r < RANKS -> ranks_one_call_apart = (call[r] + 1 >= call[me]); assert(ranks_one_call_apart); r++
    :: else -> break
    od
  }
  draw(0);
#if BLOCKS > 1
  draw(1);
#endif
  skip;    /* a d_step may not be jumped into */
  d_step {
    s = 0;
    do
    :: s < BLOCKS && call[me] <= CALLS ->
#ifdef KNOWN_TOO_EARLY
       before[AT(me, s)] = limit[AT(me, s)];
#else
       before[AT(me, s)] = first[AT(me, s)];
#endif
       first[AT(me, s)] = limit[AT(me, s)];
       acknowledge_earlier_calls(s);
       limit[AT(me, s)] = limit[AT(me, s)] + chunks[call[me] * BLOCKS + s] - 1;
       if
       :: chunks[call[me] * BLOCKS + s] > 1 -> write_fingerprint(s)
       :: else
       fi;
       s++
    :: else -> break
    od;
    r = 0;
    do
    :: r < RANKS && call[r] >= call[me] -> r++
    :: else -> break
    od;
    s = 0;
    do
    :: s < BLOCKS && r == RANKS -> chunks[(call[me] - 1) * BLOCKS + s] = 0; s++
    :: else -> break
    od
  }
}

/* At once on entry: the reads of earlier calls happen before it. */
inline acknowledge_earlier_calls(b) {
#if !defined(NOT_ON_ENTRY) && !defined(RESTART_COUNTERS)
  r = 0;
  do
  :: r < RANKS && r == me -> r++
  :: r < RANKS && r != me -> consumed[LINK(me, PEER_OF(me, r), b)] = first[AT(me, b)]; r++
  :: else -> break
  od
#else
  skip
#endif
}

inline draw(b) {
  if
  :: call[me] <= CALLS && chunks[call[me] * BLOCKS + b] == 0 ->
     chunks[call[me] * BLOCKS + b] = LEAST(b) + 1;
     do
     :: chunks[call[me] * BLOCKS + b] <= MAX_CHUNKS -> chunks[call[me] * BLOCKS + b]++
     :: break
     od
  :: else
  fi
}

/* At once on entry: later than this it could only hurt less. */
inline write_fingerprint(b) {
  r = 0;
  do
  :: r < RANKS && r == me -> r++
  :: r < RANKS && r != me -> append(PRINT(LINK(r, PEER_OF(r, me), b), call[me]), CALL(call[me])); r++
  :: else -> break
  od
}

/* In one step with the wait, which could only give the readers time. The acquire returns the least that ends the wait. */
inline write_chunk() {
  p = 0;
  do
  :: p < PEERS ->
     if
     :: CONSUMED_ORDERS && !KNOWS_ROOM && p < READERS_WAITED_FOR && n + 1 > ROOM && known_read[LINK_TO(p)] < n + 1 - ROOM -> known_read[LINK_TO(p)] = n + 1 - ROOM
     :: else
     fi;
#ifndef VALUES_ONLY
     no_overwrite_of_unread = (n < DEPTH || known_read[LINK_TO(p)] + DEPTH > n);
     assert(no_overwrite_of_unread);
#endif
     w = 0;
     do
     :: w < WORDS -> append(WORD(LINK_TO(p), PLACE(n), w), CHUNK(n)); w++
     :: else -> break
     od;
     p++
  :: else -> break
  od;
  p = 0
}

proctype writer(byte me, block) {
  byte k = 1, n;
end_of_run:
  do
  :: d_step { n < limit[AT(me, block)] && ALL_PEERS(HAS_ROOM) -> write_chunk();
#ifndef COARSE
     };
     d_step {
#endif
       ready[AT(me, block)] = COUNT(n) + 1; n++ }
  :: atomic { call[me] == k && k <= CALLS && n == limit[AT(me, block)] -> k++; finish() }
  od
}

#define LINK_FROM LINK(me, peer, block)

/* An acquire that returns the least that ends the wait: everything up to this chunk is in place. */
inline acquire_chunk() {
  if
  :: READY_ORDERS ->
     forget(WORD(LINK_FROM, PLACE(n), 0), CHUNK(n));
     forget(WORD(LINK_FROM, PLACE(n), 1), CHUNK(n));
     forget(PRINT(LINK_FROM, call[me]), CALL(call[me]))
  :: else
  fi
}

/* A plain load takes any entry that it may observe: all of them have to be right. */
inline read_chunk() {
  no_stale_read = (WORD(LINK_FROM, PLACE(n), 0) == CHUNK(n) && WORD(LINK_FROM, PLACE(n), 1) == CHUNK(n));
  assert(no_stale_read);
  fingerprint_of_this_call = (n != first[AT(me, block)] || PRINT(LINK_FROM, call[me]) == CALL(call[me]));
  assert(fingerprint_of_this_call)
}

/* Only what the same call needs again. */
#ifdef RESTART_COUNTERS
#define NEEDED true
#elif defined(ACKNOWLEDGE_SHORT)
#define NEEDED (n + DEPTH + 1 < limit[AT(me, block)])
#else
#define NEEDED (n + DEPTH < limit[AT(me, block)])
#endif
#define RELEASE_CHUNK consumed[LINK_FROM] = (NEEDED -> COUNT(n) + 1 : consumed[LINK_FROM])

#ifdef SERIAL
#define MAY_READ (ready[AT(me, block)] == limit[AT(me, block)])
#else
#define MAY_READ true
#endif
/* A chunk is folded when it has come from every peer. INDEPENDENT_PEERS: taken from each as it comes. */
#define IS_READY(i) (ready[AT(RANK_OF(me, i), block)] > COUNT(n))
#ifdef INDEPENDENT_PEERS
#define CHUNK_HAS_COME (n < limit[AT(me, block)] && MAY_READ && IS_READY(peer))
#else
#define CHUNK_HAS_COME (n < limit[AT(me, block)] && MAY_READ && ALL_PEERS(IS_READY))
#endif

proctype reader(byte me, block, peer) {
  byte k = 1, n;
end_of_run:
  do
#ifdef COARSE
  :: d_step { CHUNK_HAS_COME -> acquire_chunk(); read_chunk(); RELEASE_CHUNK; n++ }
#else
  :: d_step { CHUNK_HAS_COME -> acquire_chunk() };
     if
#ifndef CONSUMED_BEFORE_READ
     :: d_step { read_chunk(); RELEASE_CHUNK; n++ }    /* a read before this moment would see no more than this one may */
#endif
#if defined(CONSUMED_BEFORE_READ) || defined(RELAXED_CONSUMED)
     :: RELEASE_CHUNK; d_step { read_chunk(); n++ }    /* a relaxed store does not wait for the loads before it */
#endif
     fi
#endif
  :: atomic { call[me] == k && k <= CALLS && n == limit[AT(me, block)] -> k++; finish() }
  od
}

init {
  byte me, block, peer;
  atomic {
    do
    :: me < RANKS ->
       enter_call();
       block = 0;
       do
       :: block < BLOCKS ->
          run writer(me, block);
          peer = 0;
          do
          :: peer < PEERS -> run reader(me, block, peer); peer++
          :: else -> break
          od;
          block++
       :: else -> break
       od;
       me++
    :: else -> break
    od;
    me = 0; block = 0; peer = 0
  }
  /* Nothing can move any more: every rank has to be through. */
  timeout;
  d_step {
    do
    :: me < RANKS -> every_call_ends = (call[me] == CALLS + 1); assert(every_call_ends); me++
    :: else -> break
    od;
    me = 0
  }
}
