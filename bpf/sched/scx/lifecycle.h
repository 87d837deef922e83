/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* An enclave whose agent or guardian is gone or hangs becomes an *orphan*: its threads run first in, first out on
 * its CPUs, without user space, until they are given back to the default scheduler.
 *
 *   WAITING -> ORPHAN  no agent attached in time                (hd_beat)
 *   ACTIVE  -> ORPHAN  the agent has ended without detaching    (hd_process_exit)
 *   ACTIVE  -> ORPHAN  a thread that could run on one of the enclave's CPUs had none for longer than the enclave's
 *                      patience: its agent did not commit it, or the CPU that it was committed or
 *                      offered to is occupied (hd_beat)
 *   any     -> ORPHAN  the guardian has ended                   (hd_process_exit)
 *
 * All by compare-and-swap of state and agent together, from the judged value: an agent that attaches at that moment
 * is not the one that was judged. An agent that outlives its guardian inherits the enclave: it can give the threads
 * back in order, which the kernel cannot (a scheduler that ends leaves its threads' class and its pins as they
 * are). The scheduler ends with the last guardian.
 *
 * A tracing program may not move threads between queues. So parked threads stay where they are, and the enclave's
 * CPUs, each of which gets an interrupt, take them from there. */
#ifndef HEDDLE_SCX_LIFECYCLE_H
#define HEDDLE_SCX_LIFECYCLE_H

#include "words.h"

/* How often to check for threads that wait too long: also the longest that an orphan can be overlooked, see
 * hd_orphan_wake. */
#define HD_BEAT_NS 50000000ULL
/* The watchdog checks four times within an enclave's patience. */
#define HD_LOOKS 4

/* Runnable threads of an orphan. Not where they were parked: those queues are only emptied from then on, so that
 * threads in them are not overtaken forever by later ones. */
#define HD_ORPHANS(enclave) (0x80000ULL | (enclave))

struct hd_beat {
	struct bpf_timer timer;
	__u64 looked[HD_ENCLAVES]; /* the time of the watchdog's last check */
};

/* Pinned by user space: the kernel stops timers of maps that user space does not hold. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct hd_beat);
} hd_beats SEC(".maps");

/* Whether the enclave's threads run without an agent. An enclave that was removed with threads in it counts as an
 * orphan. */
static __always_inline bool hd_is_orphan(const struct hd_enclave *e)
{
	return e->state == HD_ENCLAVE_ORPHAN || e->state == HD_ENCLAVE_FREE;
}

/* Queues a thread as a scheduler without an opinion does: one queue for all, which the kernel empties by itself. */
static __always_inline void hd_plain(struct task_struct *p, __u64 flags)
{
	__s32 cpu;

	hd_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, flags);
	cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	if (cpu >= 0)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	else if (flags & SCX_ENQ_LAST)
		/* Its CPU has looked for threads, and goes idle now; it is not idle yet. */
		scx_bpf_kick_cpu(scx_bpf_task_cpu(p), 0);
}

struct hd_seek {
	__u32 slot;
	__u32 enclave;
	__u32 allowed; /* the enclave has a CPU on which the thread may run */
	__u32 spare;
};

static long hd_seek_idle(__u32 cpu, struct hd_seek *seek)
{
	struct hd_affinity *a = hd_affinity(seek->slot);
	struct hd_cpu *c = hd_cpu(cpu);

	if (!a || !c)
		return 1;
	if (c->enclave != seek->enclave || !c->online || !(a->cpus[(cpu / 64) % (HD_CPUS / 64)] >> (cpu % 64) & 1))
		return 0;
	seek->allowed = 1;
	if (!scx_bpf_test_and_clear_cpu_idle(cpu))
		return 0;
	scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	return 1;
}

/* Wakes a CPU of the enclave where the thread may run. False if the enclave has none, idle or not. A CPU that is
 * about to go idle, and has checked the queue already, is not idle yet and not woken; the next beat covers that. */
static __always_inline bool hd_orphan_wake(__u32 slot, __u32 enclave)
{
	struct hd_seek seek = { .slot = slot, .enclave = enclave };

	bpf_loop(scx_bpf_nr_cpu_ids(), hd_seek_idle, &seek, 0);
	return seek.allowed;
}

/* Enqueues a runnable thread of an orphan, without a message. */
static __always_inline void hd_orphan_enqueue(struct task_struct *p, struct hd_thread *t, __u32 slot, __u64 flags)
{
	__u32 enclave = t->enclave;
	__u64 before;

	t->runnable_at = bpf_ktime_get_ns();
	before = hd_set(t, HD_PARKED, scx_bpf_task_cpu(p));
	if ((__u32)before == HD_LATCHED)
		hd_not_latched(before >> 32, slot);
	if (hd_orphan_wake(slot, enclave))
		hd_insert(p, HD_ORPHANS(enclave), SCX_SLICE_DFL, flags);
	else
		hd_plain(p, flags);
}

/* Finds a thread for a CPU of an orphan: first those that were parked or offered when the agent went. */
static __always_inline void hd_orphan_dispatch(__u32 cpu, __u32 enclave)
{
	for (__u32 bucket = 0; bucket < HD_BUCKETS; bucket++)
		if (hd_move_to_local(HD_PARKING(enclave, bucket)))
			return;
	for (__u32 node = 0; node < HD_NODES; node++)
		if (hd_move_to_local(HD_FAST(enclave, node)))
			return;
	hd_move_to_local(HD_ORPHANS(enclave));
}

/* A thread of an orphan gets a CPU. A parked thread has an infinite slice, as an agent was to preempt it. */
static __always_inline void hd_orphan_running(struct task_struct *p, __u32 enclave)
{
	struct hd_enclave *e = hd_enclave(enclave);

	if (e && hd_is_orphan(e))
		hd_set_slice(p, SCX_SLICE_DFL);
}

struct hd_reach {
	__u32 slot;
	__u32 enclave;
	__u32 found;
	__u32 spare;
};

static long hd_reach_cpu(__u32 cpu, struct hd_reach *reach)
{
	struct hd_affinity *a = hd_affinity(reach->slot);
	struct hd_cpu *c = hd_cpu(cpu);

	if (!a || !c)
		return 1;
	if (c->enclave != reach->enclave || !(a->cpus[(cpu / 64) % (HD_CPUS / 64)] >> (cpu % 64) & 1))
		return 0;
	reach->found = 1;
	return 1;
}

/* Whether a thread may run on none of the enclave's CPUs, online or not: its program has chosen others. */
static __noinline bool hd_is_outside(__u32 slot, __u32 enclave)
{
	struct hd_reach reach = { .slot = slot, .enclave = enclave };

	bpf_loop(scx_bpf_nr_cpu_ids(), hd_reach_cpu, &reach, 0);
	return !reach.found;
}

struct hd_kick {
	__u32 enclave;
	__u32 flags;
};

static long hd_kick_its(__u32 cpu, struct hd_kick *kick)
{
	struct hd_cpu *c = hd_cpu(cpu);

	if (c && c->enclave == kick->enclave && c->online)
		scx_bpf_kick_cpu(cpu, kick->flags);
	return 0;
}

static __always_inline void hd_kick_all(__u32 enclave, __u32 flags)
{
	struct hd_kick kick = { .enclave = enclave, .flags = flags };

	bpf_loop(scx_bpf_nr_cpu_ids(), hd_kick_its, &kick, 0);
}

static __always_inline __u64 *hd_phase(struct hd_enclave *e)
{
	return (__u64 *)&e->state;
}

static __always_inline __u64 hd_phase_is(__u32 state, __u32 agent)
{
	return state | (__u64)agent << 32;
}

/* Makes the enclave an orphan, if its state and agent are still what was judged. Threads on its CPUs make way for
 * those that wait. */
__noinline int hd_orphan(__u32 enclave, __u64 judged)
{
	struct hd_enclave *e = hd_enclave(enclave);
	__u64 now = bpf_ktime_get_ns();

	if (!e || __sync_val_compare_and_swap(hd_phase(e), judged, hd_phase_is(HD_ENCLAVE_ORPHAN, 0)) != judged)
		return 0;
	e->orphaned = now;
	hd_kick_all(enclave, SCX_KICK_PREEMPT);
	return 1;
}

/* Handles the end of the guardian, whatever the agent is doing. The agent may just attach or detach, which changes
 * the word, but not forever. */
static __always_inline void hd_abandon(__u32 enclave, struct hd_enclave *e)
{
	__u32 gone = e->guardian;

	e->guardian = 0;
	for (int i = 0; i < 8; i++) {
		__u64 now = ACCESS(*hd_phase(e));

		if (now >> 32 && now >> 32 != gone)
			e->guardian = now >> 32;
		if ((__u32)now == HD_ENCLAVE_FREE || (__u32)now == HD_ENCLAVE_ORPHAN || hd_orphan(enclave, now))
			return;
	}
}

/* Handles the end of a process for one enclave. True if it was the enclave's guardian. */
static __always_inline bool hd_end_of(__u32 process, __u32 enclave)
{
	struct hd_enclave *e = hd_enclave(enclave);

	if (!e || e->state == HD_ENCLAVE_FREE)
		return false;
	if (e->guardian == process) {
		hd_abandon(enclave, e);
		return true;
	}
	if (e->agent == process)
		hd_orphan(enclave, hd_phase_is(HD_ENCLAVE_ACTIVE, process));
	return false;
}

static __always_inline bool hd_has_guardian(__u32 enclave)
{
	struct hd_enclave *e = hd_enclave(enclave);

	return e && e->state != HD_ENCLAVE_FREE && e->guardian;
}

/* Runs at the end of each thread; it is the process's end when no other thread is alive. The kernel has counted the
 * thread before it calls this. */
SEC("tp_btf/sched_process_exit")
int hd_process_exit(__u64 *ctx)
{
	static char why[] = "the last guardian has ended";
	struct task_struct *p = (void *)ctx[0];
	bool abandoned = false, guarded = false;
	unsigned long long nothing[1] = {};
	__u32 process = p->tgid;

	if (p->signal->live.counter > 0)
		return 0;
	for (__u32 id = 1; id < HD_ENCLAVES; id++)
		abandoned |= hd_end_of(process, id);
	if (!abandoned)
		return 0;
	for (__u32 id = 1; id < HD_ENCLAVES; id++)
		guarded |= hd_has_guardian(id);
	if (!guarded && bpf_ksym_exists(scx_bpf_exit_bstr))
		scx_bpf_exit_bstr(0, why, nothing, sizeof(nothing));
	return 0;
}

struct hd_look {
	__u64 since; /* a wait that began before this is too long */
	__u32 enclave;
	__u32 late;
};

static long hd_look_at(__u32 slot, struct hd_look *look)
{
	struct hd_thread *t = hd_thread(slot);

	if (!t)
		return 1;
	if (t->enclave != look->enclave || !hd_wants_cpu(t->state) || !t->runnable_at)
		return 0;
	/* No agent can help a thread that is outside, and any member can go there. */
	look->late = t->runnable_at < look->since && !hd_is_outside(slot, look->enclave);
	return look->late;
}

/* Whether the agent lets a thread wait for longer than the enclave's patience. */
static __always_inline bool hd_hangs(__u32 enclave, struct hd_enclave *e, __u64 now)
{
	struct hd_look look = { .since = now - e->patience, .enclave = enclave };
	struct hd_machine *all = hd_all();

	if (!all || now < e->patience)
		return false;
	bpf_loop(all->slots, hd_look_at, &look, 0);
	return look.late;
}

__noinline int hd_look_after(__u32 enclave, __u64 now)
{
	struct hd_enclave *e = hd_enclave(enclave);
	__u32 zero = 0;
	struct hd_beat *beat = bpf_map_lookup_elem(&hd_beats, &zero);
	__u64 word, *looked;

	if (!e || !beat || enclave >= HD_ENCLAVES)
		return 0;
	looked = &beat->looked[enclave];
	word = ACCESS(*hd_phase(e));
	if ((__u32)word == HD_ENCLAVE_ORPHAN) {
		hd_kick_all(enclave, SCX_KICK_IDLE);
	} else if ((__u32)word == HD_ENCLAVE_WAITING) {
		if (e->deadline <= now)
			hd_orphan(enclave, word);
	} else if ((__u32)word == HD_ENCLAVE_ACTIVE && e->patience && now - *looked >= e->patience / HD_LOOKS) {
		*looked = now;
		if (hd_hangs(enclave, e, now))
			hd_orphan(enclave, word);
	}
	return 0;
}

static int hd_on_beat(void *map, __u32 *key, struct hd_beat *beat)
{
	__u64 now = bpf_ktime_get_ns();

	for (__u32 id = 1; id < HD_ENCLAVES; id++)
		hd_look_after(id, now);
	bpf_timer_start(&beat->timer, HD_BEAT_NS, 0);
	return 0;
}

static long hd_make_orphans(__u32 enclave, __s32 *error)
{
	*error = scx_bpf_create_dsq(HD_ORPHANS(enclave), -1);
	return *error != 0;
}

/* Runs when the scheduler is loaded. */
static __always_inline __s32 hd_start_beat(void)
{
	__u32 zero = 0;
	struct hd_beat *beat = bpf_map_lookup_elem(&hd_beats, &zero);
	__s32 error = 0;

	if (!beat)
		return -22;
	bpf_loop(HD_ENCLAVES, hd_make_orphans, &error, 0);
	if (!error)
		error = bpf_timer_init(&beat->timer, &hd_beats, 1 /* CLOCK_MONOTONIC */);
	if (!error)
		error = bpf_timer_set_callback(&beat->timer, hd_on_beat);
	if (!error)
		error = bpf_timer_start(&beat->timer, HD_BEAT_NS, 0);
	return error;
}

#endif
