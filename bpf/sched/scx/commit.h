/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Transactions (ghOSt, section 3.2). A system-call program of the agent searches for the thread where it is parked,
 * compares what the agent believes with the present state, and moves the thread to the latch of the CPU. Groups are
 * in group.h. */
#ifndef HEDDLE_SCX_COMMIT_H
#define HEDDLE_SCX_COMMIT_H

#include "latch.h"
#include "park.h"

/* One run of the program. */
struct hd_run {
	__u32 enclave;
	__u32 first;
	__u32 done;
	__u32 failed; /* whether a transaction of an all-or-nothing group has failed */
	__u64 group;  /* its number, 0 for none */
	__u64 fault;  /* for tests: steps of a group until one is to fail; 0 for none */
};

/* Returns the enclave if the caller is its agent. */
static __always_inline struct hd_enclave *hd_of_caller(__u32 enclave)
{
	struct hd_enclave *e = enclave ? hd_enclave(enclave) : NULL;

	if (!e || e->state != HD_ENCLAVE_ACTIVE || e->agent != bpf_get_current_pid_tgid() >> 32)
		return NULL;
	return e;
}

static __always_inline bool hd_aseq_moved(struct hd_txn *x)
{
	struct hd_queue *queue = x->flags & HD_TXN_CHECK_ASEQ ? hd_queue(x->queue) : NULL;

	return queue && ACCESS(queue->aseq) != x->aseq;
}

/* Checks everything that does not need a search for the thread, in the order of `model::Machine`. */
static __always_inline __u32 hd_precheck(struct hd_txn *x, struct hd_run *run, struct hd_thread *t, struct hd_cpu *c)
{
	struct hd_affinity *a = hd_affinity(x->slot);
	__u32 state = ACCESS(t->state);

	if (state == HD_FREE || t->tid != x->tid)
		return HD_NO_THREAD;
	if (t->enclave != run->enclave || c->enclave != run->enclave)
		return HD_NOT_YOURS;
	if (x->flags & HD_TXN_CHECK_TSEQ && ACCESS(t->tseq) != x->tseq)
		return HD_STALE;
	if (hd_aseq_moved(x))
		return HD_AGENT_STALE;
	/* A staged thread is claimed, which is checked next. */
	if (state != HD_PARKED && state != HD_STAGED)
		return state == HD_BLOCKED ? HD_NOT_RUNNABLE : HD_ON_CPU;
	if (a && !(a->cpus[(x->cpu / 64) % (HD_CPUS / 64)] >> (x->cpu % 64) & 1))
		return HD_AFFINITY;
	if (!c->online)
		return HD_CPU_OFFLINE;
	if (x->flags & HD_TXN_ONLY_FREE && (c->occupant == HD_ORDINARY || c->occupant == HD_REALTIME))
		return HD_CPU_TAKEN;
	return HD_OPEN;
}

static __always_inline bool hd_may_run(struct task_struct *p, __u32 slot, __u32 cpu)
{
	if (!bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
		return false;
	if (!p->migration_disabled || (__u32)scx_bpf_task_cpu(p) == cpu)
		return true;
	/* The next reader of its affinity sees the reason. */
	hd_write_affinity(slot, p, true);
	return false;
}

/* Moves a thread that was found, has the right number and may run there, to the CPU's latch, or straight to the CPU. */
static __always_inline bool hd_place(struct bpf_iter_scx_dsq *it, struct task_struct *p, struct hd_txn *x,
				     __u32 cpu, struct hd_thread *t)
{
	bool direct = x->flags & HD_TXN_DIRECT, moved;
	__u64 flags = direct && x->flags & HD_TXN_PREEMPT ? SCX_ENQ_PREEMPT : 0;
	__u64 before = ACCESS(*hd_word(t)), latched = hd_is(HD_LATCHED, cpu);

	/* The word first: once the thread is moved, the CPU may take it at any moment and send a message. */
	if ((__u32)before != HD_PARKED || !hd_change(t, before, latched))
		return false;
	hd_move_slice(it, x->slice ? x->slice : SCX_SLICE_INF);
	moved = hd_move(it, p, direct ? SCX_DSQ_LOCAL_ON | cpu : HD_LATCH(cpu), flags);
	if (!moved)
		hd_change(t, latched, before);
	return moved;
}

/* Latches a thread that was found. The CPU's word first, also for one that goes straight to the CPU, so that no
 * thread is committed behind it unnoticed. */
static __always_inline __u32 hd_latch(struct bpf_iter_scx_dsq *it, struct task_struct *p, struct hd_txn *x,
				      __u32 slot, __u32 cpu, struct hd_thread *t, struct hd_cpu *c)
{
	if (ACCESS(c->latched))
		hd_unlatch(cpu, true);
	if (__sync_val_compare_and_swap(&c->latched, 0, slot + 1) != 0)
		return HD_AGAIN;
	if (hd_place(it, p, x, cpu, t))
		return HD_COMMITTED;
	hd_not_latched(cpu, slot);
	return HD_AGAIN;
}

/* Puts a thread that was found where no CPU takes it, until it is known whether all of its group can be committed. */
static __always_inline __u32 hd_stage(struct bpf_iter_scx_dsq *it, struct task_struct *p, __u32 cpu,
				      struct hd_thread *t)
{
	__u64 before = ACCESS(*hd_word(t)), staged = hd_is(HD_STAGED, before >> 32);

	if ((__u32)before != HD_PARKED || !hd_change(t, before, staged))
		return HD_AGAIN;
	if (hd_move(it, p, HD_STAGE(cpu), 0))
		return HD_COMMITTED;
	hd_change(t, staged, before);
	return HD_AGAIN;
}

/* Searches for the thread of transaction `at` in `slot` where it is parked, and latches or stages it. Its slot and
 * the CPU are claimed. */
__noinline __u32 hd_search(__u32 at, __u32 slot, __u32 cpu, __u32 enclave, bool group)
{
	struct hd_txn *x = hd_txn(at);
	struct hd_thread *t = hd_thread(slot);
	struct hd_cpu *c = hd_cpu(cpu);
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	__u32 result = HD_AGAIN;

	if (!x || !t || !c)
		return HD_INVALID;
	bpf_rcu_read_lock();
	bpf_iter_scx_dsq_new(&it, HD_PARKING(enclave, slot), 0);
	while ((p = bpf_iter_scx_dsq_next(&it))) {
		if (!hd_is_in(p, slot))
			continue;
		/* The slot may have been reused meanwhile. Now that the iterator has the thread, every
		 * change of it costs it its place, and the move fails. */
		if (t->tid != x->tid)
			result = HD_NO_THREAD;
		else if (x->flags & HD_TXN_CHECK_TSEQ && ACCESS(t->tseq) != x->tseq)
			result = HD_STALE;
		else if (!hd_may_run(p, slot, cpu))
			result = HD_AFFINITY;
		else if (group)
			result = hd_stage(&it, p, cpu, t);
		else
			result = hd_latch(&it, p, x, slot, cpu, t, c);
		break;
	}
	bpf_iter_scx_dsq_destroy(&it);
	bpf_rcu_read_unlock();
	return result;
}

/* Recalls a thread that was latched to a CPU that has just gone offline. */
static __always_inline void hd_check_online(__u32 cpu, struct hd_cpu *c)
{
	if (!ACCESS(c->online))
		hd_unlatch(cpu, true);
}

static __always_inline __u32 hd_try(struct hd_txn *x, __u32 at, struct hd_run *run)
{
	__u32 slot = ACCESS(x->slot), cpu = ACCESS(x->cpu), result;
	struct hd_thread *t = hd_thread(slot);
	struct hd_cpu *c = hd_cpu(cpu);

	if (!t || !c)
		return HD_INVALID;
	result = hd_precheck(x, run, t, c);
	if (result != HD_OPEN)
		return result;
	if (!hd_claim(slot))
		return HD_AGAIN;
	result = HD_AGAIN;
	if (__sync_val_compare_and_swap(&c->claim, 0, HD_ALONE) == 0) {
		result = hd_search(at, slot, cpu, run->enclave, false);
		__sync_lock_test_and_set(&c->claim, 0);
	}
	hd_unclaim(slot);
	if (result != HD_COMMITTED)
		return result;
	/* A message came while it was latched: an agent that gives its CPU to the thread must not sleep over it. */
	if (!(x->flags & HD_TXN_DIRECT) && hd_aseq_moved(x) && hd_unlatch(cpu, false))
		return HD_AGENT_STALE;
	hd_check_online(cpu, c);
	return result;
}

static long hd_commit_one(__u32 index, struct hd_run *run)
{
	struct hd_txn *x = hd_txn(run->first + index);
	__u32 result;

	if (!x)
		return 1;
	result = hd_try(x, run->first + index, run);
	x->result = result;
	run->done += result == HD_COMMITTED;
	return 0;
}

/* Kicks the CPU, unless it has found the thread by itself. The running thread is preempted only now: before its
 * successor is latched it could be back already. */
static long hd_kick_one(__u32 index, struct hd_run *run)
{
	struct hd_txn *x = hd_txn(run->first + index);
	struct hd_cpu *c = x ? hd_cpu(x->cpu) : NULL;
	__u32 current;

	if (!c)
		return 1;
	if (x->result != HD_COMMITTED)
		return 0;
	/* Also for a thread that went straight to the CPU: the kick of the move itself was seen not to be enough. */
	current = ACCESS(c->current);
	if (current != x->slot + 1)
		scx_bpf_kick_cpu(x->cpu, current && x->flags & HD_TXN_PREEMPT ? SCX_KICK_PREEMPT : 0);
	return 0;
}

static __always_inline void hd_count(struct hd_enclave *e, __u32 done, __u32 count)
{
	__sync_fetch_and_add(&e->committed, done);
	if (done < count)
		__sync_fetch_and_add(&e->failed, count - done);
}

#define HD_EPERM 1
#define HD_EBUSY 16
#define HD_EINVAL 22

/* Whether the transactions of a call are in the enclave's part of the table. */
static __always_inline bool hd_are_its(const struct hd_call *call)
{
	__u32 at = call->first - call->enclave * HD_TXNS;

	return at < HD_TXNS && call->count <= HD_TXNS - at;
}

SEC("syscall")
int hd_commit(struct hd_call *call)
{
	struct hd_run run = {.enclave = call->enclave, .first = call->first};
	struct hd_enclave *e = hd_of_caller(call->enclave);
	__u32 count = call->count;

	call->result = -HD_EPERM;
	if (!e || !hd_are_its(call) || count > HD_TXNS)
		return 0;
	bpf_loop(count, hd_commit_one, &run, 0);
	bpf_loop(count, hd_kick_one, &run, 0);
	hd_count(e, run.done, count);
	call->result = run.done;
	return 0;
}

#endif
