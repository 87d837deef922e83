/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* All-or-nothing groups: every thread is latched to its CPU, or nothing has changed and no message was sent.
 *
 *   stage   Each thread is claimed and goes to the stage of its CPU, from which no CPU takes. A thread that is
 *           latched to the CPU stays latched, but is claimed, and so is the CPU: no other commit can change the latch.
 *   verify  Checks that each thread is still staged, and that what its transaction rests on still holds.
 *   finish  The group is decided now, and nothing can fail any more: each CPU's latch is emptied, with a message, and
 *           its thread latched.
 *   undo    Instead of finish: each thread goes back to where it was parked, with its old word. Its CPU's latch was
 *           not touched.
 *
 * If the kernel puts a thread into another queue meanwhile, it is no longer staged, which its word says (hd_park).
 * If that happens after the decision, the thread has lost its latch, as any latched thread may, which a message
 * reports. */
#ifndef HEDDLE_SCX_GROUP_H
#define HEDDLE_SCX_GROUP_H

#include "commit.h"

#define HD_HOLDS_SLOT 1
#define HD_HOLDS_CPU 2
#define HD_HOLDS_OLD 4

/* What a group holds for one of its transactions. Not in shared memory, where the agent could change it. */
struct hd_step {
	__u32 slot;
	__u32 tid;
	__u32 cpu;
	__u32 old;  /* slot of the thread that is latched to the CPU, with HD_HOLDS_OLD */
	__u32 held; /* HD_HOLDS_* */
	__u32 spare;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HD_ENCLAVES * HD_TXNS);
	__type(key, __u32);
	__type(value, struct hd_step);
} hd_steps SEC(".maps");

LOOKUP(hd_step, hd_steps, hd_step)

/* Whether a test wants this step to fail. */
static __always_inline bool hd_is_fault(struct hd_run *run)
{
	return run->fault && --run->fault == 0;
}

/* Whether a claimed thread waits in a CPU's latch: it may be on its way to the CPU already, past recall. */
__noinline int hd_is_in_latch(__u32 cpu, __u32 slot)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	bool found = false;

	bpf_rcu_read_lock();
	bpf_iter_scx_dsq_new(&it, HD_LATCH(cpu), 0);
	while ((p = bpf_iter_scx_dsq_next(&it)))
		found |= hd_is_in(p, slot);
	bpf_iter_scx_dsq_destroy(&it);
	bpf_rcu_read_unlock();
	return found;
}

/* Claims the thread, its CPU, and the thread that is latched there. */
static __always_inline __u32 hd_hold(struct hd_step *s, struct hd_run *run, struct hd_cpu *c)
{
	__u64 holder = hd_claim_for(s->slot, run->group);
	__u32 latched;

	if (holder)
		return holder == run->group ? HD_ON_CPU : HD_AGAIN;
	s->held |= HD_HOLDS_SLOT;
	if (hd_is_fault(run))
		return HD_AGAIN;
	holder = __sync_val_compare_and_swap(&c->claim, 0, run->group);
	/* Two of one group for one CPU: one of them cannot have it. */
	if (holder)
		return holder == run->group ? HD_INVALID : HD_AGAIN;
	s->held |= HD_HOLDS_CPU;
	latched = ACCESS(c->latched);
	if (!latched)
		return HD_OPEN;
	s->old = latched - 1;
	if (hd_claim_for(s->old, run->group))
		return HD_AGAIN;
	s->held |= HD_HOLDS_OLD;
	return hd_is_in_latch(s->cpu, s->old) && !hd_is_fault(run) ? HD_OPEN : HD_AGAIN;
}

static __always_inline __u32 hd_stage_one(struct hd_txn *x, __u32 at, struct hd_step *s, struct hd_run *run)
{
	struct hd_thread *t;
	struct hd_cpu *c;
	__u32 result;

	s->slot = ACCESS(x->slot);
	s->tid = x->tid;
	s->cpu = ACCESS(x->cpu);
	s->held = 0;
	t = hd_thread(s->slot);
	c = hd_cpu(s->cpu);
	if (!t || !c)
		return HD_INVALID;
	result = hd_precheck(x, run, t, c);
	if (result != HD_OPEN)
		return result;
	/* One has failed: none will be committed, although this one could be. */
	if (run->failed)
		return HD_POISONED;
	result = hd_hold(s, run, c);
	if (result == HD_OPEN)
		result = hd_search(at, s->slot, s->cpu, run->enclave, true);
	return result == HD_COMMITTED && hd_is_fault(run) ? HD_AGAIN : result;
}

static long hd_stage_next(__u32 index, struct hd_run *run)
{
	__u32 at = run->first + index, result;
	struct hd_txn *x = hd_txn(at);
	struct hd_step *s = hd_step(at);

	if (!x || !s)
		return 1;
	result = hd_stage_one(x, at, s, run);
	x->result = result;
	run->failed |= result != HD_COMMITTED;
	return 0;
}

static __always_inline __u32 hd_verify_one(struct hd_txn *x, struct hd_step *s, struct hd_run *run)
{
	struct hd_thread *t = hd_thread(s->slot);
	struct hd_cpu *c = hd_cpu(s->cpu);

	if (!t || !c)
		return HD_INVALID;
	if (x->flags & HD_TXN_CHECK_TSEQ && ACCESS(t->tseq) != x->tseq)
		return HD_STALE;
	if (hd_aseq_moved(x))
		return HD_AGENT_STALE;
	if (!ACCESS(c->online))
		return HD_CPU_OFFLINE;
	return ACCESS(t->state) == HD_STAGED && !hd_is_fault(run) ? HD_COMMITTED : HD_AGAIN;
}

static long hd_verify_next(__u32 index, struct hd_run *run)
{
	struct hd_txn *x = hd_txn(run->first + index);
	struct hd_step *s = hd_step(run->first + index);
	__u32 result;

	if (!x || !s)
		return 1;
	result = hd_verify_one(x, s, run);
	x->result = result;
	run->failed |= result != HD_COMMITTED;
	return 0;
}

static __always_inline void hd_release(struct hd_step *s, struct hd_cpu *c)
{
	if (s->held & HD_HOLDS_OLD)
		hd_unclaim(s->old);
	if (s->held & HD_HOLDS_CPU)
		__sync_lock_test_and_set(&c->claim, 0);
	if (s->held & HD_HOLDS_SLOT)
		hd_unclaim(s->slot);
	s->held = 0;
}

/* The queue first and the word after, as in hd_take_back. */
__noinline int hd_unstage(__u32 cpu, __u32 slot, __u32 enclave)
{
	struct hd_thread *t = hd_thread(slot);
	__u64 before;

	if (!t)
		return 0;
	bpf_rcu_read_lock();
	hd_move_slot(HD_STAGE(cpu), HD_PARKING(enclave, slot), slot, 0);
	bpf_rcu_read_unlock();
	before = ACCESS(*hd_word(t));
	if ((__u32)before == HD_STAGED)
		hd_change(t, before, hd_is(HD_PARKED, before >> 32));
	return 0;
}

static long hd_undo_next(__u32 index, struct hd_run *run)
{
	struct hd_txn *x = hd_txn(run->first + index);
	struct hd_step *s = hd_step(run->first + index);
	struct hd_cpu *c = s ? hd_cpu(s->cpu) : NULL;

	if (!x || !s)
		return 1;
	if (x->result == HD_COMMITTED)
		x->result = HD_POISONED;
	if (!c)
		return 0;
	if (s->held & HD_HOLDS_CPU)
		hd_unstage(s->cpu, s->slot, run->enclave);
	hd_release(s, c);
	hd_check_online(s->cpu, c);
	return 0;
}

/* Moves a thread from its stage to the latch. If it is no longer staged, it was put into another queue after the
 * decision. */
__noinline int hd_latch_staged(__u32 cpu, __u32 slot, __u32 tid, __u64 slice)
{
	struct hd_thread *t = hd_thread(slot);
	struct hd_cpu *c = hd_cpu(cpu);
	__u64 before;

	if (!t || !c)
		return 0;
	__sync_lock_test_and_set(&c->latched, slot + 1);
	before = ACCESS(*hd_word(t));
	if ((__u32)before == HD_STAGED && hd_change(t, before, hd_is(HD_LATCHED, cpu))) {
		bpf_rcu_read_lock();
		/* If this fails, the thread has just left the latch by itself, and has sent a message. */
		hd_move_slot(HD_STAGE(cpu), HD_LATCH(cpu), slot, slice);
		bpf_rcu_read_unlock();
		return 0;
	}
	hd_not_latched(cpu, slot);
	if (t->tid == tid && t->state == HD_PARKED)
		hd_notify(HD_THREAD_PREEMPTED, slot, t->cpu, 1);
	return 0;
}

static long hd_finish_next(__u32 index, struct hd_run *run)
{
	struct hd_txn *x = hd_txn(run->first + index);
	struct hd_step *s = hd_step(run->first + index);
	struct hd_cpu *c = s ? hd_cpu(s->cpu) : NULL;
	bool waits = true;

	if (!x || !s || !c)
		return 1;
	if (s->held & HD_HOLDS_OLD)
		waits = hd_unlatch_claimed(s->cpu, s->old, true);
	hd_latch_staged(s->cpu, s->slot, s->tid, x->slice ? x->slice : SCX_SLICE_INF);
	/* The CPU has taken the old thread at this very moment: hd_kick_one may not see it there yet. */
	if (!waits && x->flags & HD_TXN_PREEMPT)
		scx_bpf_kick_cpu(s->cpu, SCX_KICK_PREEMPT);
	hd_release(s, c);
	hd_check_online(s->cpu, c);
	return 0;
}

SEC("syscall")
int hd_commit_group(struct hd_call *call)
{
	struct hd_run run = {.enclave = call->enclave, .first = call->first, .fault = call->value};
	struct hd_enclave *e = hd_of_caller(call->enclave);
	struct hd_machine *all = hd_all();
	__u32 count = call->count;

	call->result = -HD_EPERM;
	if (!e || !all || !hd_are_its(call) || count > HD_TXNS)
		return 0;
	run.group = __sync_fetch_and_add(&all->groups, 1) + 1;
	bpf_loop(count, hd_stage_next, &run, 0);
	if (!run.failed)
		bpf_loop(count, hd_verify_next, &run, 0);
	if (run.failed) {
		bpf_loop(count, hd_undo_next, &run, 0);
	} else {
		bpf_loop(count, hd_finish_next, &run, 0);
		bpf_loop(count, hd_kick_one, &run, 0);
		run.done = count;
	}
	hd_count(e, run.done, count);
	call->result = run.done;
	return 0;
}

#endif
