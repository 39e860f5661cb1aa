/*
 * Sentinel one-shot through host memory: slots, sentinels, in-band header, lagging control word.
 *
 * Unbounded: no call number is kept. All calls are counted relative to the slowest rank, which is always in call NOW; whenever every rank
 * has left call NOW, all numbers drop by one and the slots rotate. The state space is finite and covers runs of any length, with the
 * number of data words of each call chosen freely out of a pair that the run draws at its start.
 *
 * A rank is one process whose duties of a call (release, post, clear, acquire, one poll a peer and word) are bits of `todo`: any
 * order, any interleaving with the other ranks. A call ends when all are done (kernel boundary).
 *
 * Mutants, as macros: SLOTS, LAG (calls by which the acquire lags), CLEAR_AHEAD (calls until the slot cleared is used again), NO_ACQUIRE,
 * RELAXED_CONTROL (the store, or the load, of the control word orders nothing), NO_CLEAR, CLEAR_SHORT (the last word stays),
 * CLEAR_SKIPS_HEADER, HEADER_VOUCHES (data words are taken, untested, once the header has come), NO_HEADER.
 * VALUES_ONLY: judge by what is read alone, not by the order of events. PROGRESS: for the search for cycles in which no call ends.
 */

#ifndef RANKS
#define RANKS 2
#endif
#ifndef DATA_WORDS
#define DATA_WORDS 2
#endif

#ifndef SLOTS
#define SLOTS 6
#endif
#ifndef LAG
#define LAG 1
#endif
#ifndef CLEAR_AHEAD
#define CLEAR_AHEAD 3
#endif
#ifdef NO_HEADER
#define FIRST_WORD 1
#else
#define FIRST_WORD 0
#endif

#define PEERS (RANKS - 1)
#define WORDS (DATA_WORDS + 1)
#define CHANNEL_DEPTH 3
#include "word_channel.pml"

/* An entry is the sentinel or the data of a call, with the call that stored it. */
#define CLEARED(call) (2 * (call) + 1)
#define DATA(call) (2 * (call) + 2)
#define IS_DATA(entry) (((entry) & 1) == 0)
#define CALL_OF(entry) (((entry) - 1) >> 1)

#define NOW 9
#define SLOT_OF(call) (((call) + 4 * SLOTS - NOW) % SLOTS)

/* Reader `reader` has its peers numbered 0 .. PEERS - 1, rank (reader + 1 + peer) % RANKS each. */
#define RANK_OF(reader, peer) (((reader) + 1 + (peer)) % RANKS)
#define PEER_OF(reader, rank) (((rank) + RANKS - (reader) - 1) % RANKS)
#define WORD(reader, peer, slot, w) word[(((reader) * PEERS + (peer)) * SLOTS + (slot)) * WORDS + (w)]

short word[RANKS * PEERS * SLOTS * WORDS] = CLEARED(0);
byte control[RANKS] = NOW - 1;
byte call[RANKS] = NOW;
byte known[RANKS] = NOW - 1;      /* every peer's calls up to this one happen before the rank's current call */
byte extent[RANKS * SLOTS];       /* words that the rank left in its slot, header included */
byte size[4];                     /* data words of the calls NOW, NOW + 1, ...: the last two only where ranks may drift apart */
byte drawn = NOW - 1;
byte few, many;
short todo[RANKS];
hidden short saved;

bit no_stale_read = 1, no_overwrite_of_unread = 1, slot_cleared_before_reuse = 1, ranks_one_call_apart = 1;

#define RELEASE 1
#define POST 2
#define CLEAR 4
#define ACQUIRE 8
#define POLL(peer, w) (16 << ((peer) * WORDS + (w)))
#define DUE(duty) ((todo[me] & (duty)) != 0)
#define DONE(duty) todo[me] = todo[me] & ~(duty)

inline store_to_all(slot, first_word, n_words, entry) {
  r = 0;
  do
  :: r < RANKS && r == me -> r++
  :: r < RANKS && r != me ->
     w = first_word;
     do
     :: w < (n_words) ->
        if
        :: WORD(r, PEER_OF(r, me), slot, w) == CLEARED(0) ->
           WORD(r, PEER_OF(r, me), slot, w) = entry    /* a sentinel in view and something after it: only the latter is ever acted on */
        :: else -> append(WORD(r, PEER_OF(r, me), slot, w), entry)
        fi;
        w++
     :: else -> break
     od;
     r++
  :: else -> break
  od
}

inline enter_call() {
#ifndef VALUES_ONLY
  ranks_one_call_apart = (call[me] <= NOW + 1);
  assert(ranks_one_call_apart);
#endif
  if
  :: call[me] > drawn ->
     drawn++;
     if
     :: size[call[me] - NOW] = few
     :: size[call[me] - NOW] = many
     fi
  :: else
  fi;
  d_step {
    todo[me] = RELEASE | POST;
#ifndef NO_CLEAR
    todo[me] = todo[me] | CLEAR;
#endif
#ifndef NO_ACQUIRE
    todo[me] = todo[me] | ACQUIRE;
#endif
    p = 0;
    do
    :: p < PEERS ->
       w = FIRST_WORD;
       do
       :: w <= size[call[me] - NOW] -> todo[me] = todo[me] | POLL(p, w); w++
       :: else -> break
       od;
       p++
    :: else -> break
    od
  }
}

/* The kernel boundary: what the acquires of this call brought in orders the loads and stores of the next one. */
inline leave_call() {
#if !defined(NO_ACQUIRE) && !defined(RELAXED_CONTROL)
  if
  :: known[me] < call[me] - LAG - 1 -> known[me] = call[me] - LAG - 1
  :: else
  fi;
#endif
  s = 0;
  do
  :: s < PEERS * SLOTS * WORDS ->
     do
     :: MORE(WORD(me, 0, 0, s)) && CALL_OF(NEXT(WORD(me, 0, 0, s))) <= known[me] -> WORD(me, 0, 0, s) = REST(WORD(me, 0, 0, s))
     :: else -> break
     od;
     if
     :: !MORE(WORD(me, 0, 0, s)) && !IS_DATA(WORD(me, 0, 0, s)) -> WORD(me, 0, 0, s) = CLEARED(0)
     :: else
     fi;
     s++
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

/* Every rank has left call NOW: the call after it becomes NOW. */
inline rebase() {
  drawn--;
  size[0] = size[1]; size[1] = size[2]; size[2] = size[3]; size[3] = 0;
  r = 0;
  do
  :: r < RANKS ->
     call[r]--;
     control[r]--;
     if :: known[r] > 0 -> known[r]-- :: else fi;
     w = extent[r * SLOTS];
     s = 0;
     do
     :: s < SLOTS - 1 -> extent[r * SLOTS + s] = extent[r * SLOTS + s + 1]; s++
     :: else -> break
     od;
     extent[r * SLOTS + SLOTS - 1] = w;
     p = 0;
     do
     :: p < PEERS ->
        w = 0;
        do
        :: w < WORDS ->
           saved = WORD(r, p, 0, w);
           s = 0;
           do
           :: s < SLOTS - 1 -> WORD(r, p, s, w) = WORD(r, p, s + 1, w); s++
           :: else -> break
           od;
           WORD(r, p, SLOTS - 1, w) = saved;
           s = 0;
           do
           :: s < SLOTS ->
              shift = 0;
              do
              :: shift < CHANNEL_DEPTH ->
                 if
                 :: ((WORD(r, p, s, w) >> (ENTRY_BITS * shift)) & ENTRY_MASK) > 2 -> WORD(r, p, s, w) = WORD(r, p, s, w) - (2 << (ENTRY_BITS * shift))
                 :: else
                 fi;
                 shift++
              :: else -> break
              od;
              s++
           :: else -> break
           od;
           w++
        :: else -> break
        od;
        p++
     :: else -> break
     od;
     r++
  :: else -> break
  od;
  shift = 0
}

#ifdef CLEAR_SHORT
#define CLEARED_WORDS(slot) (extent[me * SLOTS + (slot)] - 1)
#else
#define CLEARED_WORDS(slot) extent[me * SLOTS + (slot)]
#endif

#ifdef CLEAR_SKIPS_HEADER
#define FIRST_CLEARED 1
#else
#define FIRST_CLEARED FIRST_WORD
#endif
/* Whether a poll may end. */
#ifdef HEADER_VOUCHES
#define HAS_ARRIVED(peer, w) (w > 0 -> !DUE(POLL(peer, 0)) : IS_DATA(SEEN(WORD(me, peer, MY_SLOT, w))))
#else
#define HAS_ARRIVED(peer, w) IS_DATA(SEEN(WORD(me, peer, MY_SLOT, w)))
#endif

#define MY_SLOT SLOT_OF(call[me])
#define STALE_SLOT SLOT_OF(call[me] + CLEAR_AHEAD)

/* A poll ends with whatever data the reader may observe. Seeing a sentinel changes nothing but the view. */
#define DUTIES_TOWARDS(peer, w) \
  :: d_step { DUE(POLL(peer, w)) && HAS_ARRIVED(peer, w) -> \
       no_stale_read = (SEEN(WORD(me, peer, MY_SLOT, w)) == DATA(call[me])); \
       assert(no_stale_read); \
       DONE(POLL(peer, w)) } \
  :: d_step { DUE(POLL(peer, w)) && MORE(WORD(me, peer, MY_SLOT, w)) -> \
       WORD(me, peer, MY_SLOT, w) = REST(WORD(me, peer, MY_SLOT, w)) }
#if RANKS > 2
#define ALL_PEERS(x) (x(0) && x(1))
#else
#define ALL_PEERS(x) x(0)
#endif
#define HAS_RELEASED(peer) (control[RANK_OF(me, peer)] + LAG >= call[me])

proctype rank(byte me) {
  atomic { enter_call() };
  do
  :: d_step { DUE(RELEASE) -> control[me] = call[me]; DONE(RELEASE) }
  :: d_step { DUE(POST) ->
#ifndef VALUES_ONLY
       slot_cleared_before_reuse = (extent[me * SLOTS + MY_SLOT] == 0);
       assert(slot_cleared_before_reuse);
#endif
       extent[me * SLOTS + MY_SLOT] = size[call[me] - NOW] + 1;
       store_to_all(MY_SLOT, FIRST_WORD, extent[me * SLOTS + MY_SLOT], DATA(call[me]));
       DONE(POST) }
  :: d_step { DUE(CLEAR) ->
#ifndef VALUES_ONLY
       no_overwrite_of_unread = (extent[me * SLOTS + STALE_SLOT] == 0 || known[me] + SLOTS >= call[me] + CLEAR_AHEAD);
       assert(no_overwrite_of_unread);
#endif
       store_to_all(STALE_SLOT, FIRST_CLEARED, CLEARED_WORDS(STALE_SLOT), CLEARED(call[me]));
       extent[me * SLOTS + STALE_SLOT] = 0;
       DONE(CLEAR) }
  :: d_step { DUE(ACQUIRE) && ALL_PEERS(HAS_RELEASED) -> DONE(ACQUIRE) }
  DUTIES_TOWARDS(0, 0)
#if DATA_WORDS > 0
  DUTIES_TOWARDS(0, 1)
#endif
#if DATA_WORDS > 1
  DUTIES_TOWARDS(0, 2)
#endif
#if RANKS > 2
  DUTIES_TOWARDS(1, 0)
#if DATA_WORDS > 0
  DUTIES_TOWARDS(1, 1)
#endif
#if DATA_WORDS > 1
  DUTIES_TOWARDS(1, 2)
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
    many = DATA_WORDS;
    if
    :: few = 0
    :: DATA_WORDS > 1 -> few = 1
    fi;
    i = 0;
    do
    :: i < RANKS -> run rank(i); i++
    :: else -> break
    od
  }
}
