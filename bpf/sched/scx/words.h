/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Changes of the status words. A thread's state and CPU are one word of eight bytes, so that a commit, which does not
 * hold the run queue's lock, changes them by compare-and-swap from exactly what it has seen; all other
 * code holds the lock and swaps unconditionally.
 *
 *   FREE -> BLOCKED            joins                  (enable)
 *   BLOCKED -> PARKED          can run                (enqueue)
 *   PARKED -> LATCHED          committed              (commit: compare-and-swap)
 *   LATCHED -> PARKED          recalled, or re-queued (recall: compare-and-swap; enqueue)
 *   PARKED  -> STAGED          held by a group             (group: compare-and-swap)
 *   STAGED  -> LATCHED         the group is committed      (group: compare-and-swap)
 *   STAGED  -> PARKED          the group failed, or re-queued (group: compare-and-swap; enqueue)
 *   LATCHED -> ONCPU           runs                   (running)
 *   ONCPU -> PARKED, BLOCKED   loses or gives up its CPU (enqueue, quiescent)
 *   any -> FREE                leaves                 (disable) */
#ifndef HEDDLE_SCX_WORDS_H
#define HEDDLE_SCX_WORDS_H

#include "maps.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the state and the CPU of a thread are taken for the low and the high half of one word"
#endif

static __always_inline __u64 *hd_word(struct hd_thread *t)
{
	return (__u64 *)&t->state;
}

static __always_inline __u64 hd_is(__u32 state, __u32 cpu)
{
	return state | (__u64)cpu << 32;
}

static __always_inline __u64 hd_set(struct hd_thread *t, __u32 state, __u32 cpu)
{
	return __sync_lock_test_and_set(hd_word(t), hd_is(state, cpu));
}

static __always_inline bool hd_change(struct hd_thread *t, __u64 from, __u64 to)
{
	return __sync_val_compare_and_swap(hd_word(t), from, to) == from;
}

/* Whether a thread could run and has no CPU. */
static __always_inline bool hd_wants_cpu(__u32 state)
{
	return state == HD_PARKED || state == HD_STAGED || state == HD_LATCHED;
}

/* Clears what the CPU's word says of the thread in `slot`. */
static __always_inline void hd_not_latched(__u32 cpu, __u32 slot)
{
	struct hd_cpu *c = hd_cpu(cpu);

	if (c && c->latched == slot + 1)
		__sync_val_compare_and_swap(&c->latched, slot + 1, 0);
}

static __always_inline void hd_not_current(__u32 cpu, __u32 slot, __u64 now)
{
	struct hd_cpu *c = hd_cpu(cpu);

	if (!c || c->current != slot + 1)
		return;
	__sync_val_compare_and_swap(&c->current, slot + 1, 0);
	c->since = now;
}

#endif
