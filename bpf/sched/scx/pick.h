/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* The user's `pick_next` of an enclave: which of the offered threads a CPU takes. It is a program of its own, which the
 * kernel runs at each call of the function `hd_pick_N` of enclave N (fentry), while the enclave's guardian holds the
 * link. It cannot do more than answer: what it sees is a copy, and the answer is an index that is checked here. */
#ifndef HEDDLE_SCX_PICK_H
#define HEDDLE_SCX_PICK_H

#include "latch.h"
#include "heddle/offers.h"

/* Shared with pick_nexts. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct hd_pick);
} hd_picks SEC(".maps");

/* Which threads the offers are. Not in the same map: a pick_next can write all of that. */
struct hd_offered {
	__u32 count;
	__u32 own; /* how many of them were offered to this CPU alone */
	__u32 slots[HD_OFFERS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct hd_offered);
} hd_all_offered SEC(".maps");

/* For each enclave. */
#define HD_EACH(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
_Static_assert(HD_ENCLAVES == 16, "a function for each enclave");

/* Where a pick_next runs, before the function itself, which does nothing; the compiler must not see that. */
#define HD_FUNCTION(number)                                    \
	__noinline int hd_pick_##number(void)                  \
	{                                                      \
		int nothing = 0;                               \
		asm volatile("" : "+r"(nothing) : : "memory"); \
		return nothing;                                \
	}

HD_EACH(HD_FUNCTION)

#define HD_CALL(number)             \
	case number:                \
		hd_pick_##number(); \
		break;

static __always_inline void hd_pick(__u32 enclave)
{
	switch (enclave) {
		HD_EACH(HD_CALL)
	}
}

static __always_inline bool hd_can_take(struct task_struct *p, __u32 cpu)
{
	return bpf_cpumask_test_cpu(cpu, p->cpus_ptr) &&
	       (!p->migration_disabled || (__u32)scx_bpf_task_cpu(p) == cpu);
}

/* Describes the threads of a queue that the CPU may take, after those that are there already. */
static __noinline int hd_describe_offers(struct hd_pick *pick, struct hd_offered *all, __u64 queue, __u32 cpu,
					 __u32 own)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;

	bpf_iter_scx_dsq_new(&it, queue, 0);
	while ((p = bpf_iter_scx_dsq_next(&it))) {
		struct hd_task *k = hd_task(p);
		struct hd_thread *t = k && k->slot ? hd_thread(k->slot - 1) : NULL;
		struct hd_hint *h = t ? hd_hint(k->slot - 1) : NULL;
		__u32 at = all->count;
		__u64 now = pick->offers.now, since;
		struct hd_offer *offer;

		if (at >= HD_OFFERS)
			break;
		if (!t || !h || !hd_can_take(p, cpu))
			continue;
		since = t->runnable_at;
		offer = &pick->offers.offer[at];
		offer->waited = now > since ? now - since : 0;
		offer->runtime = t->runtime;
		offer->hint = h->hint;
		offer->class = h->class;
		offer->weight = t->weight;
		offer->tid = t->tid;
		offer->tgid = t->tgid;
		offer->cpu = scx_bpf_task_cpu(p);
		offer->own = own;
		all->slots[at] = k->slot - 1;
		all->count = at + 1;
		all->own += own;
	}
	bpf_iter_scx_dsq_destroy(&it);
	return 0;
}

/* Takes the thread in `slot` to the CPU, if it is still offered. */
static __noinline int hd_take_offered(__u64 queue, __u32 slot, __u32 cpu)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	bool moved = false;

	bpf_iter_scx_dsq_new(&it, queue, 0);
	while ((p = bpf_iter_scx_dsq_next(&it))) {
		if (!hd_is_in(p, slot))
			continue;
		if (hd_can_take(p, cpu))
			moved = hd_move(&it, p, SCX_DSQ_LOCAL_ON | cpu, 0);
		break;
	}
	bpf_iter_scx_dsq_destroy(&it);
	return moved;
}

/* Lets the enclave's pick_next choose a thread for the CPU. Returns whether the CPU is to take the first instead: if it
 * says so, its answer is wrong, or another CPU has just taken the one that it chose. */
__noinline int hd_take_picked(__u32 cpu, __u32 enclave, __u32 node)
{
	__u64 own = HD_OWN(cpu), fast = HD_FAST(enclave, node % HD_NODES);
	__u32 zero = 0, answer;
	struct hd_pick *pick = bpf_map_lookup_elem(&hd_picks, &zero);
	struct hd_offered *all = bpf_map_lookup_elem(&hd_all_offered, &zero);
	struct hd_enclave *e = hd_enclave(enclave);

	if (!pick || !all || !e)
		return true;
	pick->offers.now = bpf_ktime_get_ns();
	all->count = all->own = 0;
	hd_describe_offers(pick, all, own, cpu, 1);
	hd_describe_offers(pick, all, fast, cpu, 0);
	if (!all->count)
		return false;
	pick->offers.cpu = cpu;
	pick->offers.count = all->count;
	pick->answer = HD_IN_ORDER;
	hd_pick(enclave);
	answer = ACCESS(pick->answer);
	if (answer == HD_IN_ORDER)
		return true;
	if (answer == HD_NONE) {
		__sync_fetch_and_add(&e->declined, 1);
		return false;
	}
	if (answer >= all->count || answer >= HD_OFFERS) {
		__sync_fetch_and_add(&e->misjudged, 1);
		return true;
	}
	if (!hd_take_offered(answer < all->own ? own : fast, all->slots[answer], cpu))
		return true;
	__sync_fetch_and_add(&e->picked, 1);
	return false;
}

static __always_inline void hd_take_first(__u32 cpu, __u32 enclave, __u32 node)
{
	if (!hd_move_to_local(HD_OWN(cpu)))
		hd_move_to_local(HD_FAST(enclave, node % HD_NODES));
}

static __always_inline void hd_on_dispatch(__u32 cpu)
{
	struct hd_cpu *c = hd_cpu(cpu);
	struct hd_enclave *e = c && c->enclave ? hd_enclave(c->enclave) : NULL;

	if (!e)
		return;
	/* The word may be a moment ahead of the queue, so the queue is checked whatever the word says. */
	if (hd_move_to_local(HD_LATCH(cpu)))
		return;
	if (hd_is_orphan(e)) {
		if (!hd_move_to_local(HD_OWN(cpu)))
			hd_orphan_dispatch(cpu, c->enclave);
	} else if (!(e->flags & HD_FLAG_PICKS) || hd_take_picked(cpu, c->enclave, c->node)) {
		hd_take_first(cpu, c->enclave, c->node);
	}
}

#endif
