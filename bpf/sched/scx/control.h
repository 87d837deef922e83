/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* The agent's calls other than commits. */
#ifndef HEDDLE_SCX_CONTROL_H
#define HEDDLE_SCX_CONTROL_H

#include "group.h"

static __always_inline __s64 hd_preempt(__u32 cpu, __u32 enclave)
{
	struct hd_cpu *c = hd_cpu(cpu);

	if (!c || c->enclave != enclave || !ACCESS(c->current))
		return 0;
	scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	return 1;
}

static __always_inline __s64 hd_recall(__u32 cpu, __u32 enclave)
{
	struct hd_cpu *c = hd_cpu(cpu);

	if (!c || c->enclave != enclave)
		return 0;
	return hd_unlatch(cpu, true);
}

/* Sends the thread's messages to another queue, if its agent has read all that went to the present one. */
static __always_inline __s64 hd_associate(__u32 slot, __u32 number, __u32 enclave)
{
	struct hd_thread *t = hd_thread(slot);
	struct hd_queue *to = hd_queue(number), *from = t ? hd_queue(t->queue) : NULL;
	__u32 before;
	__u64 tseq;

	if (!t || !to || !from || t->enclave != enclave || to->enclave != enclave)
		return -HD_EINVAL;
	before = t->queue;
	tseq = ACCESS(t->tseq);
	if ((__u32)tseq != t->consumed)
		return -HD_EBUSY;
	__sync_lock_test_and_set(&t->queue, number);
	/* A message on its way may have gone to either queue. */
	if (__sync_fetch_and_add(&t->tseq, 0) != tseq) {
		__sync_lock_test_and_set(&t->queue, before);
		return -HD_EBUSY;
	}
	__sync_fetch_and_add(&from->associated, -1);
	__sync_fetch_and_add(&to->associated, 1);
	return 0;
}

/* Where a thread is that was offered to `place`. */
static __always_inline __u64 hd_offered_at(__u32 enclave, __u32 place)
{
	return place & HD_OWN_CPU ? HD_OWN(place % HD_CPUS) : HD_FAST(enclave, place % HD_NODES);
}

/* Moves a parked thread to where CPUs take it without the agent (ghOSt, section 3.2). */
static __noinline int hd_offer(struct hd_thread *t, __u32 slot, __u32 place)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	__u64 before, offered = hd_is(HD_LATCHED, place);
	bool moved = false;

	if (!t)
		return false;
	before = ACCESS(*hd_word(t));
	bpf_iter_scx_dsq_new(&it, HD_PARKING(t->enclave, slot), 0);
	while ((p = bpf_iter_scx_dsq_next(&it))) {
		if (!hd_is_in(p, slot))
			continue;
		if ((__u32)before != HD_PARKED || !hd_change(t, before, offered))
			break;
		hd_move_slice(&it, SCX_SLICE_INF);
		moved = hd_move(&it, p, hd_offered_at(t->enclave, place), 0);
		if (!moved)
			hd_change(t, offered, before);
		break;
	}
	bpf_iter_scx_dsq_destroy(&it);
	return moved;
}

static __always_inline __s64 hd_offer_checked(struct hd_call *call)
{
	__u32 slot = call->first, cpu = call->count & ~HD_OWN_CPU, enclave = call->enclave, place;
	struct hd_thread *t = hd_thread(slot);
	struct hd_cpu *c = hd_cpu(cpu);
	bool moved;

	if (!t || !c || t->enclave != enclave || c->enclave != enclave)
		return -HD_EINVAL;
	if (t->tseq != call->value || !hd_claim(slot))
		return 0;
	place = HD_SOMEWHERE | (call->count & HD_OWN_CPU ? HD_OWN_CPU | cpu : c->node % HD_NODES);
	bpf_rcu_read_lock();
	moved = hd_offer(t, slot, place);
	bpf_rcu_read_unlock();
	hd_unclaim(slot);
	if (moved)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	return moved;
}

static __always_inline __s64 hd_revoke(__u32 slot, __u32 enclave)
{
	struct hd_thread *t = hd_thread(slot);
	__u32 place = t ? t->cpu : 0;
	bool moved;

	if (!t || t->enclave != enclave)
		return -HD_EINVAL;
	if (t->state != HD_LATCHED || !(place & HD_SOMEWHERE) || !hd_claim(slot))
		return 0;
	bpf_rcu_read_lock();
	moved = hd_take_back(hd_offered_at(enclave, place), t, slot, false);
	bpf_rcu_read_unlock();
	hd_unclaim(slot);
	return moved;
}

SEC("syscall")
int hd_control(struct hd_call *call)
{
	__u32 enclave = call->enclave;
	__s64 result = -HD_EINVAL;

	if (!hd_of_caller(enclave))
		result = -HD_EPERM;
	else if (call->operation == HD_RECALL)
		result = hd_recall(call->first, enclave);
	else if (call->operation == HD_PREEMPT)
		result = hd_preempt(call->first, enclave);
	else if (call->operation == HD_ASSOCIATE)
		result = hd_associate(call->first, call->count, enclave);
	else if (call->operation == HD_OFFER)
		result = hd_offer_checked(call);
	else if (call->operation == HD_REVOKE)
		result = hd_revoke(call->first, enclave);
	call->result = result;
	return 0;
}

#endif
