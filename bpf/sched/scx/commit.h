/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Transactions (ghOSt, section 3.2). A system-call program of the agent looks for the thread where it is parked, compares what the
 * agent believes with what is so, and moves it to the latch of the CPU. */
#ifndef HEDDLE_SCX_COMMIT_H
#define HEDDLE_SCX_COMMIT_H

#include "latch.h"
#include "park.h"

/* One run of the program. */
struct hd_run {
	__u32 enclave;
	__u32 first;
	__u32 done;
	__u32 failed; /* of an all-or-nothing group: one has failed */
	__u64 group;  /* its number, 0 for none */
};

/* Whether the caller is the enclave's agent. */
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

/* What can be seen without looking for the thread, in the order of `model::Machine`. */
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
	if (state != HD_PARKED)
		return state == HD_BLOCKED ? HD_NOT_RUNNABLE : HD_ON_CPU;
	if (a && !(a->cpus[(x->cpu / 64) % (HD_CPUS / 64)] >> (x->cpu % 64) & 1))
		return HD_AFFINITY;
	if (!c->online)
		return HD_CPU_OFFLINE;
	if (x->flags & HD_TXN_ONLY_FREE && (c->occupant == HD_ORDINARY || c->occupant == HD_REALTIME))
		return HD_CPU_TAKEN;
	return HD_OPEN;
}

static __always_inline bool hd_may_run(struct hd_txn *x, struct task_struct *p)
{
	if (!bpf_cpumask_test_cpu(x->cpu, p->cpus_ptr))
		return false;
	if (!p->migration_disabled || (__u32)scx_bpf_task_cpu(p) == x->cpu)
		return true;
	/* Who asks for its affinity next is told why. */
	hd_write_affinity(x->slot, p, true);
	return false;
}

/* Makes room in the latch and takes it. */
static __always_inline bool hd_take_latch(struct hd_txn *x, struct hd_run *run, struct hd_cpu *c)
{
	if (ACCESS(c->latched)) {
		/* Two of one group for one CPU: one of them cannot have it. */
		if (run->group && c->group == run->group)
			return false;
		hd_unlatch(x->cpu, true);
	}
	if (__sync_val_compare_and_swap(&c->latched, 0, x->slot + 1) != 0)
		return false;
	c->group = run->group;
	return true;
}

static __always_inline bool hd_goes_direct(struct hd_txn *x, struct hd_run *run)
{
	return x->flags & HD_TXN_DIRECT && !run->group;
}

/* Moves a thread that was found, has the right number and may run there. */
static __always_inline bool hd_place(struct bpf_iter_scx_dsq *it, struct task_struct *p, struct hd_txn *x, struct hd_run *run, struct hd_thread *t)
{
	bool direct = hd_goes_direct(x, run), moved;
	__u64 flags = direct && x->flags & HD_TXN_PREEMPT ? SCX_ENQ_PREEMPT : 0;
	__u64 before = ACCESS(*hd_word(t)), latched = hd_is(HD_LATCHED, x->cpu);

	/* The word first: once it is moved the CPU may take it at any moment and say so. */
	if ((__u32)before != HD_PARKED || !hd_change(t, before, latched))
		return false;
	hd_move_slice(it, x->slice ? x->slice : SCX_SLICE_INF);
	moved = hd_move(it, p, direct ? SCX_DSQ_LOCAL_ON | x->cpu : HD_LATCH(x->cpu), flags);
	if (!moved)
		hd_change(t, latched, before);
	return moved;
}

static __always_inline __u32 hd_found(struct bpf_iter_scx_dsq *it, struct task_struct *p, struct hd_txn *x, struct hd_run *run, struct hd_thread *t, struct hd_cpu *c)
{
	/* Now that the iterator has it, every change of it costs it its place, and the move fails. */
	if (x->flags & HD_TXN_CHECK_TSEQ && ACCESS(t->tseq) != x->tseq)
		return HD_STALE;
	if (!hd_may_run(x, p))
		return HD_AFFINITY;
	/* One that goes straight to the CPU holds the latch as well, so that nobody is committed behind it unnoticed. */
	if (!hd_take_latch(x, run, c))
		return run->group && c->group == run->group ? HD_INVALID : HD_AGAIN;
	if (hd_place(it, p, x, run, t))
		return HD_COMMITTED;
	hd_not_latched(x->cpu, x->slot);
	return HD_AGAIN;
}

/* Looks for the thread of transaction `at`, which is claimed, where it is parked. */
__noinline __u32 hd_search(__u32 at, __u32 enclave, __u64 group)
{
	struct hd_run run = {.enclave = enclave, .group = group};
	struct hd_txn *x = hd_txn(at);
	struct hd_thread *t = x ? hd_thread(x->slot) : NULL;
	struct hd_cpu *c = x ? hd_cpu(x->cpu) : NULL;
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	__u32 result = HD_AGAIN;

	if (!x || !t || !c)
		return HD_INVALID;
	bpf_rcu_read_lock();
	bpf_iter_scx_dsq_new(&it, HD_PARKING(enclave, x->slot), 0);
	while ((p = bpf_iter_scx_dsq_next(&it))) {
		if (!hd_is_in(p, x->slot))
			continue;
		/* Another may have come into the slot meanwhile. */
		result = t->tid == x->tid ? hd_found(&it, p, x, &run, t, c) : HD_NO_THREAD;
		break;
	}
	bpf_iter_scx_dsq_destroy(&it);
	bpf_rcu_read_unlock();
	return result;
}

static __always_inline __u32 hd_try(struct hd_txn *x, __u32 at, struct hd_run *run)
{
	struct hd_thread *t = hd_thread(x->slot);
	struct hd_cpu *c = hd_cpu(x->cpu);
	__u32 result;

	if (!t || !c)
		return HD_INVALID;
	result = hd_precheck(x, run, t, c);
	if (result != HD_OPEN)
		return result;
	if (!hd_claim(x->slot))
		return HD_AGAIN;
	result = hd_search(at, run->enclave, run->group);
	hd_unclaim(x->slot);
	/* News that came while it was latched: an agent that gives its CPU to the thread must not sleep over it. */
	if (result == HD_COMMITTED && !hd_goes_direct(x, run) && hd_aseq_moved(x) && hd_unlatch(x->cpu, false))
		return HD_AGENT_STALE;
	return result;
}

static long hd_commit_one(__u32 index, struct hd_run *run)
{
	struct hd_txn *x = hd_txn(run->first + index);
	__u32 result;

	if (!x)
		return 1;
	if (run->group && run->failed) {
		x->result = HD_POISONED;
		return 0;
	}
	result = hd_try(x, run->first + index, run);
	x->result = result;
	if (result == HD_COMMITTED)
		run->done++;
	else
		run->failed = 1;
	return 0;
}

/* Tells the CPU, unless it has found the thread by itself. Whoever runs there is asked to go only now, for asked before the
 * thread is latched it could be back already. */
static long hd_kick_one(__u32 index, struct hd_run *run)
{
	struct hd_txn *x = hd_txn(run->first + index);
	struct hd_cpu *c = x ? hd_cpu(x->cpu) : NULL;
	__u32 current;

	if (!c)
		return 1;
	if (x->result != HD_COMMITTED)
		return 0;
	/* Also for one that went straight to the CPU: what the move itself asks for was seen not to be enough. */
	current = ACCESS(c->current);
	if (current != x->slot + 1)
		scx_bpf_kick_cpu(x->cpu, current && x->flags & HD_TXN_PREEMPT ? SCX_KICK_PREEMPT : 0);
	return 0;
}

/* One of a group that failed: back to where it was, without a message, for the result says so. */
static long hd_undo_one(__u32 index, struct hd_run *run)
{
	struct hd_txn *x = hd_txn(run->first + index);
	struct hd_cpu *c = x ? hd_cpu(x->cpu) : NULL;

	if (!c)
		return 1;
	if (x->result != HD_COMMITTED)
		return 0;
	if (c->group == run->group && c->latched == x->slot + 1)
		hd_unlatch(x->cpu, false);
	x->result = HD_POISONED;
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

SEC("syscall")
int hd_commit(struct hd_call *call)
{
	struct hd_run run = {.enclave = call->enclave, .first = call->first};
	struct hd_enclave *e = hd_of_caller(call->enclave);
	__u32 count = call->count;

	call->result = -HD_EPERM;
	if (!e || count > HD_TXNS)
		return 0;
	bpf_loop(count, hd_commit_one, &run, 0);
	bpf_loop(count, hd_kick_one, &run, 0);
	hd_count(e, run.done, count);
	call->result = run.done;
	return 0;
}

/* All or none (3.9 of the notes): every thread is latched behind the group's number, which opens all latches at once. */
SEC("syscall")
int hd_commit_group(struct hd_call *call)
{
	struct hd_run run = {.enclave = call->enclave, .first = call->first};
	struct hd_enclave *e = hd_of_caller(call->enclave);
	struct hd_machine *all = hd_all();
	__u32 count = call->count;
	__u64 *complete;

	call->result = -HD_EPERM;
	if (!e || !all || count > HD_TXNS)
		return 0;
	run.group = __sync_fetch_and_add(&all->groups, 1) + 1;
	complete = hd_group(run.group);
	if (!complete)
		return 0;
	bpf_loop(count, hd_commit_one, &run, 0);
	if (run.failed) {
		bpf_loop(count, hd_undo_one, &run, 0);
		run.done = 0;
	} else {
		__sync_lock_test_and_set(complete, run.group);
		bpf_loop(count, hd_kick_one, &run, 0);
	}
	hd_count(e, run.done, count);
	call->result = run.done;
	return 0;
}

#endif
