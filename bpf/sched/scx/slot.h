/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Slots of status words. Freed slots are used again first, so that the used ones stay together and a scan need only
 * go up to hd_machine.slots. */
#ifndef HEDDLE_SCX_SLOT_H
#define HEDDLE_SCX_SLOT_H

#include "maps.h"

struct hd_slots {
	struct bpf_spin_lock lock;
	__u32 given_back;
	__u32 used;
	__u32 stack[HD_THREADS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct hd_slots);
} hd_slots SEC(".maps");

/* Takes a slot. Returns it plus one, or 0 if all are in use. */
__noinline __u32 hd_take_slot(void)
{
	__u32 zero = 0, slot = 0;
	struct hd_slots *slots = bpf_map_lookup_elem(&hd_slots, &zero);
	struct hd_machine *all = hd_all();

	if (!slots || !all)
		return 0;
	bpf_spin_lock(&slots->lock);
	__u32 count = slots->given_back;
	if (count > 0 && count <= HD_THREADS) {
		slots->given_back = count - 1;
		slot = slots->stack[count - 1] + 1;
	} else if (slots->used < HD_THREADS) {
		slots->used++;
		slot = slots->used;
	}
	all->slots = slots->used;
	bpf_spin_unlock(&slots->lock);
	return slot;
}

__noinline int hd_give_slot(__u32 slot)
{
	__u32 zero = 0;
	struct hd_slots *slots = bpf_map_lookup_elem(&hd_slots, &zero);

	if (!slots)
		return 0;
	bpf_spin_lock(&slots->lock);
	__u32 count = slots->given_back;
	if (count < HD_THREADS) {
		slots->stack[count] = slot;
		slots->given_back = count + 1;
	}
	bpf_spin_unlock(&slots->lock);
	return 0;
}

/* Claims of code that moves a thread between queues, or changes what is latched to a CPU (hd_cpu.claim), without the
 * run queue's lock: one at a time, so that no compare-and-swap succeeds on a word that another such change has left.
 * Not a lock: code that does not get a claim retries later. A group claims by its number, other code by HD_ALONE. */
#define HD_ALONE (~0ULL)

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HD_THREADS);
	__type(key, __u32);
	__type(value, __u64);
} hd_claims SEC(".maps");

/* Takes the claim for `who`. Returns the present holder, or 0 if `who` has it now. */
static __always_inline __u64 hd_claim_for(__u32 slot, __u64 who)
{
	__u64 *claim = bpf_map_lookup_elem(&hd_claims, &slot);

	return claim ? __sync_val_compare_and_swap(claim, 0, who) : HD_ALONE;
}

static __always_inline bool hd_claim(__u32 slot)
{
	return hd_claim_for(slot, HD_ALONE) == 0;
}

static __always_inline void hd_unclaim(__u32 slot)
{
	__u64 *claim = bpf_map_lookup_elem(&hd_claims, &slot);

	if (claim)
		__sync_lock_test_and_set(claim, 0);
}

#endif
