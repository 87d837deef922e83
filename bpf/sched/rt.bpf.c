/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* The kernel side of the real-time backend: it watches threads and sends messages. It decides nothing and changes
 * no thread; user space does that by system calls. One object per enclave.
 *
 * The states of a thread, and who changes them (the word is `live`, see rt.h):
 *
 *   gone -> blocked      fork, or user space admits it         blocked  -> runnable  wakeup
 *   runnable -> blocked  switched out asleep; commit is over    runnable -> runnable  user space commits or parks it
 *   any -> gone          exit, exec of another thread, a change of policy by another program
 *   any -> runnable      exec, by which it has another number
 *
 * The order of every change: the word with state and sequence number, then its copies, then the message. */
#include "rt/slots.h"

struct cpumask {
	unsigned long bits[1];
} __attribute__((preserve_access_index));

struct task_struct {
	unsigned int __state;
	int prio;
	int static_prio;
	unsigned int policy;
	struct cpumask cpus_mask;
	int pid;
	int tgid;
	unsigned long long start_boottime;
} __attribute__((preserve_access_index));

#define SCHED_FIFO 1
#define SCHED_RR 2
#define SCHED_RESET_ON_FORK 0x40000000
#define FIRST_ORDINARY_PRIO 100
#define NICE_0_PRIO 120

/* The kernel's weights (sched_prio_to_weight) of nice -20 to 19, of which 100 is nice 0. */
static const __u16 weights[40] = {
	8668, 7007, 5511, 4553, 3632, 2848, 2381, 1822, 1477, 1187, 932, 745, 596, 479, 382, 305, 244, 195, 156, 125,
	100, 80, 64, 51, 41, 33, 27, 21, 17, 13, 11, 8, 7, 6, 4, 4, 3, 2, 2, 1,
};

/* Nanoseconds of a tick of /proc. */
#define TICK 10000000

static __always_inline __u32 weight_of(__s32 nice)
{
	__u32 at = nice + 20;

	return at < 40 ? weights[at] : 100;
}

/* The bits of a mask's word that stand for one of `cpus` CPUs. */
static __always_inline __u64 bits_below(__u64 cpus, __u32 word)
{
	if (cpus >= (word + 1) * 64)
		return ~0ULL;
	return cpus <= word * 64 ? 0 : (1ULL << (cpus - word * 64)) - 1;
}

/* Notices what other programs have changed: the thread's nice value, CPUs, policy. There is no tracepoint for
 * these, and one for system calls would cost every system call of the machine; so a thread is inspected when it
 * gets a CPU. */
static __noinline int inspect(struct task_struct *p, __u32 slot)
{
	struct hd_thread *w = bpf_map_lookup_elem(&threads, &slot);
	struct rt_thread *t = bpf_map_lookup_elem(&lives, &slot);
	struct hd_affinity *want = bpf_map_lookup_elem(&wanted, &slot);
	struct hd_affinity *place = bpf_map_lookup_elem(&placed, &slot);
	__s32 nice = p->static_prio - NICE_0_PRIO;
	struct hd_enclave *e = the_enclave();
	__u32 size = bpf_core_type_size(struct cpumask);
	__u64 seq, mask[HD_CPUS / 64] = {}, differ = 0;

	if (!w || !t || !want || !place || !e || t->changing || !t->policy)
		return 0;
	if (nice != t->nice) {
		t->nice = nice;
		w->weight = weight_of(nice);
		seq = turn(t, 1 << RT_RUNNABLE, RT_RUNNABLE, RT_ANY, true);
		if (seq)
			send(slot, HD_THREAD_PRIORITY, seq, w->weight);
	}
	if (p->policy + 1 != t->policy)
		return end_slot(slot, w->tid, HD_THREAD_DEPARTED);
	bpf_probe_read_kernel(mask, size > sizeof mask ? sizeof mask : size, &p->cpus_mask);
	for (int i = 0; i < HD_CPUS / 64; i++) {
		/* Bits of a mask beyond the possible CPUs are not cleared. */
		mask[i] &= bits_below(e->spare[RT_CPUS], i);
		differ |= mask[i] ^ place->cpus[i];
	}
	if (!differ)
		return 0;
	for (int i = 0; i < HD_CPUS / 64; i++)
		want->cpus[i] = place->cpus[i] = mask[i];
	seq = turn(t, 1 << RT_RUNNABLE, RT_RUNNABLE, RT_ANY, true);
	if (seq)
		send(slot, HD_THREAD_AFFINITY, seq, 0);
	return 0;
}

static __always_inline void arrive(struct task_struct *p, __u32 slot, __u32 cpu, __u64 now)
{
	struct hd_thread *w = bpf_map_lookup_elem(&threads, &slot);
	struct rt_thread *t = bpf_map_lookup_elem(&lives, &slot);

	if (!w || !t)
		return;
	w->cpu = cpu;
	w->on_at = now;
	t->since = now;
	ACCESS(t->running) = cpu + 1;
	inspect(p, slot);
	w->state = ACCESS(t->live) & RT_COMMITTED ? HD_ONCPU : HD_PARKED;
}

static __always_inline void leave(struct task_struct *p, __u32 slot, bool asleep, __u32 cpu, __u64 now)
{
	struct hd_thread *w = bpf_map_lookup_elem(&threads, &slot);
	struct rt_thread *t = bpf_map_lookup_elem(&lives, &slot);
	__u64 seq;

	if (!w || !t)
		return;
	if (t->since)
		w->runtime += now - t->since;
	t->since = 0;
	ACCESS(t->running) = 0;
	w->cpu = cpu;
	if (!asleep) {
		/* A parked thread waits since it was parked, even if it runs where nothing else does. */
		if (ACCESS(t->live) & RT_COMMITTED)
			w->runnable_at = now;
		w->state = ACCESS(t->live) & RT_COMMITTED ? HD_LATCHED : HD_PARKED;
		return;
	}
	seq = turn(t, 1 << RT_RUNNABLE, RT_BLOCKED, RT_ANY, false);
	if (!seq)
		return;
	w->state = HD_BLOCKED;
	send(slot, HD_THREAD_BLOCKED, seq, 0);
}

static __always_inline void occupy(struct task_struct *p, __u32 *slot, __u32 cpu, __u64 now)
{
	struct hd_cpu *c = bpf_map_lookup_elem(&cpus, &cpu);
	struct hd_enclave *e = the_enclave();
	__u32 occupant;

	if (!c || !c->enclave || !e)
		return;
	if (!p->pid)
		occupant = HD_IDLE;
	else if (slot)
		occupant = HD_MANAGED;
	else if ((__u32)p->tgid == e->agent)
		occupant = HD_AGENT;
	else
		occupant = p->prio < FIRST_ORDINARY_PRIO ? HD_REALTIME : HD_ORDINARY;
	c->occupant = occupant;
	c->current = slot ? *slot + 1 : 0;
	c->since = now;
}

SEC("tp_btf/sched_switch")
int rt_switch(__u64 *ctx)
{
	bool preempted = ctx[0];
	struct task_struct *prev = (void *)ctx[1], *next = (void *)ctx[2];
	__u32 asleep = ctx[3];
	__u32 *left = slot_of(prev->pid, prev->tgid), *came = slot_of(next->pid, next->tgid);
	__u32 cpu = bpf_get_smp_processor_id();
	__u64 now = bpf_ktime_get_ns();

	/* Before 6.13 the argument holds the old state of a thread with a signal, although it stays awake. */
	if (left)
		leave(prev, *left, !preempted && asleep && prev->__state, cpu, now);
	if (came)
		arrive(next, *came, cpu, now);
	occupy(next, came, cpu, now);
	return 0;
}

/* The thread waits from now on. Recorded before its word says that it waits: a reader of the word must not find an
 * old time. */
static __always_inline void parks(struct hd_thread *w, struct rt_thread *t, __u32 from, __u32 committed)
{
	__u64 old = ACCESS(t->live);

	if (1u << (old & 15) & from && (committed == RT_ANY || (__u32)((old & RT_COMMITTED) >> 4) == committed))
		w->runnable_at = bpf_ktime_get_ns();
}

static __always_inline void awake(struct task_struct *p, __u32 kind, __u64 info)
{
	__u32 *slot = slot_of(p->pid, p->tgid);
	struct rt_thread *t = slot ? bpf_map_lookup_elem(&lives, slot) : NULL;
	struct hd_thread *w = slot ? bpf_map_lookup_elem(&threads, slot) : NULL;
	__u64 seq;

	if (!slot || !t || !w)
		return;
	/* A thread that had not switched out yet was never asleep. */
	parks(w, t, 1 << RT_BLOCKED, RT_ANY);
	seq = turn(t, 1 << RT_BLOCKED, RT_RUNNABLE, RT_ANY, false);
	if (!seq)
		return;
	w->state = HD_PARKED;
	send(*slot, kind, seq, info);
}

SEC("tp_btf/sched_wakeup")
int rt_wakeup(__u64 *ctx)
{
	awake((void *)ctx[0], HD_THREAD_WAKEUP, 0);
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int rt_wakeup_new(__u64 *ctx)
{
	awake((void *)ctx[0], HD_THREAD_CREATED, 1);
	return 0;
}

/* Gives a child what it inherits. User space has made the children of real-time parents ordinary. */
static __always_inline void inherit(__u32 from, __u32 to)
{
	struct hd_thread *w = bpf_map_lookup_elem(&threads, &from), *child = bpf_map_lookup_elem(&threads, &to);
	struct rt_thread *t = bpf_map_lookup_elem(&lives, &from), *c = bpf_map_lookup_elem(&lives, &to);
	struct hd_affinity *a = bpf_map_lookup_elem(&wanted, &from), *b = bpf_map_lookup_elem(&wanted, &to);
	__u32 policy;

	if (!w || !child || !t || !c || !a || !b)
		return;
	*b = *a;
	child->queue = w->queue;
	child->weight = w->weight;
	policy = t->old_policy;
	c->nice = t->nice;
	c->old_policy = policy;
	c->old_priority = t->old_priority;
	if (policy & SCHED_RESET_ON_FORK) {
		policy &= ~SCHED_RESET_ON_FORK;
		if (policy == SCHED_FIFO || policy == SCHED_RR)
			policy = c->old_priority = 0;
		c->old_policy = policy;
		c->nice = t->nice < 0 ? 0 : t->nice;
	}
}

/* Gives a child a slot and what it inherits from the thread of slot `parent`; false if there is no slot. */
static __always_inline bool adopt(__u32 parent, struct task_struct *child)
{
	__u32 tid = child->pid, slot = take_slot(tid, child->tgid);
	struct hd_thread *w;
	struct rt_thread *t;

	if (slot >= HD_THREADS)
		return false;
	inherit(parent, slot);
	w = bpf_map_lookup_elem(&threads, &slot);
	t = bpf_map_lookup_elem(&lives, &slot);
	if (w)
		count_thread(w, 1);
	if (t)
		t->began = child->start_boottime / TICK;
	bpf_map_update_elem(&tids, &tid, &slot, BPF_ANY);
	return true;
}

/* Changes the number of the thread of `slot` from `before` to `tid`; 0 if `before` is no longer its number.
 * Everything else stays. The agent gets a message as for a new thread, and sets its policy to find out which one it
 * has. */
static __noinline int renumber(__u32 slot, __u32 before, __u32 tid)
{
	struct hd_thread *w = bpf_map_lookup_elem(&threads, &slot);
	struct rt_thread *t = bpf_map_lookup_elem(&lives, &slot);
	__u32 *number = bpf_map_lookup_elem(&tids, &before);
	__u64 seq;

	if (!w || !t || __sync_val_compare_and_swap(&w->tid, before, tid) != before)
		return 0;
	/* The number may be that of another managed thread by now. */
	if (number && *number == slot)
		bpf_map_delete_elem(&tids, &before);
	t->policy = 0;
	t->began = 0;
	t->since = 0;
	ACCESS(t->running) = 0;
	w->runnable_at = bpf_ktime_get_ns();
	seq = turn(t, 1 << RT_BLOCKED | 1 << RT_RUNNABLE, RT_RUNNABLE, RT_ANY, false);
	if (!seq)
		return 0;
	bpf_map_update_elem(&tids, &tid, &slot, BPF_ANY);
	w->state = HD_PARKED;
	send(slot, HD_THREAD_CREATED, seq, 1);
	return 1;
}

SEC("tp_btf/sched_process_fork")
int rt_fork(__u64 *ctx)
{
	struct task_struct *parent = (void *)ctx[0], *child = (void *)ctx[1];
	__u32 *slot = slot_of(parent->pid, parent->tgid);
	struct hd_enclave *e = the_enclave();

	/* A child without a slot is unmanaged: never real-time, but at SCHED_IDLE and on one CPU if its parent was.
	 * Counted for the status report. */
	if (slot && !adopt(*slot, child) && e)
		__sync_fetch_and_add(&e->spare[RT_REFUSED], 1);
	return 0;
}

/* A thread that is not its process's first takes over the first one's number when it calls exec, long before this
 * tracepoint, which comes when the program is loaded. User space may have noticed first (RT_RENUMBER). */
SEC("tp_btf/sched_process_exec")
int rt_exec(__u64 *ctx)
{
	struct task_struct *p = (void *)ctx[0];
	__u32 before = ctx[1], tid = p->pid;
	__u32 *slot = before == tid ? NULL : slot_of(before, p->tgid);

	if (slot)
		renumber(*slot, before, tid);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int rt_exit(__u64 *ctx)
{
	struct task_struct *p = (void *)ctx[0];
	__u32 tid = p->pid;
	__u32 *slot = slot_of(tid, p->tgid);
	struct hd_enclave *e = the_enclave();

	if (slot)
		end_slot(*slot, tid, HD_THREAD_DEAD);
	if (e && e->agent && e->agent == tid) {
		e->state = HD_ENCLAVE_ORPHAN;
		e->orphaned = bpf_ktime_get_ns();
		e->agent = 0;
	}
	return 0;
}

static __always_inline void admit(struct rt_call *call)
{
	struct hd_enclave *e = the_enclave();
	__u32 slot = take_slot(call->tid, call->tgid);
	struct hd_thread *w = bpf_map_lookup_elem(&threads, &slot);
	struct rt_thread *t = bpf_map_lookup_elem(&lives, &slot);

	call->slot = slot;
	if (!w || !t || !e)
		return;
	w->queue = e->queue;
	w->weight = weight_of(call->nice);
	t->nice = call->nice;
	t->old_policy = call->old_policy;
	t->old_priority = call->old_priority;
	count_thread(w, 1);
	call->worked = 1;
}

static __always_inline void report(struct rt_call *call)
{
	__u32 slot = call->slot;
	struct hd_thread *w = bpf_map_lookup_elem(&threads, &slot);
	struct rt_thread *t = bpf_map_lookup_elem(&lives, &slot);
	__u64 seq;

	if (!w || !t || w->tid != call->tid)
		return;
	parks(w, t, call->from, call->committed);
	seq = turn(t, call->from, call->to & 15, call->committed, false);
	if (!seq)
		return;
	w->state = (call->to & 15) == RT_BLOCKED ? HD_BLOCKED : HD_PARKED;
	call->worked = 1;
	send(slot, call->kind, seq, call->info);
}

static __always_inline void follow(struct rt_call *call)
{
	__u32 slot = call->slot;
	struct rt_thread *t = bpf_map_lookup_elem(&lives, &slot);

	call->worked = renumber(slot, call->tid, call->tgid);
	if (call->worked && t)
		t->began = call->info;
}

static __always_inline void give_up(struct rt_call *call)
{
	__u32 slot = call->slot;
	struct hd_thread *w = bpf_map_lookup_elem(&threads, &slot);

	/* A thread with another number by now is not the one that user space has given back. */
	if (w && w->tid == call->tid)
		call->worked = end_slot(slot, call->tid, call->kind);
}

SEC("syscall")
int rt_call(struct rt_call *call)
{
	call->worked = 0;
	if (call->operation == RT_ADMIT)
		admit(call);
	else if (call->operation == RT_REPORT)
		report(call);
	else if (call->operation == RT_LEAVE)
		give_up(call);
	else if (call->operation == RT_RENUMBER)
		follow(call);
	return 0;
}

char _license[] SEC("license") = "Dual MIT/GPL";
