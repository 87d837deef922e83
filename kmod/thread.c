// SPDX-License-Identifier: GPL-2.0
/*
 * Registered threads: their state in the processor while they run, and in memory while they do not.
 */
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <asm/apic.h>
#include <asm/msr.h>

#include "uintr.h"

/* How many there are, in all processes. */
static atomic_t threads = ATOMIC_INIT(0);
static atomic_t processes = ATOMIC_INIT(0);

u32 uintr_threads(void)
{
	return atomic_read(&threads);
}

u32 uintr_processes(void)
{
	return atomic_read(&processes);
}

/* The interrupt flag for user interrupts, which no register shows. Old assemblers do not know these. */

static void set_uif(bool on)
{
	if (on)
		asm volatile(".byte 0xf3, 0x0f, 0x01, 0xef" ::: "memory"); /* stui */
	else
		asm volatile(".byte 0xf3, 0x0f, 0x01, 0xee" ::: "memory"); /* clui */
}

static bool get_uif(void)
{
	bool on;

	asm volatile(".byte 0xf3, 0x0f, 0x01, 0xed" : "=@ccc"(on)::"memory"); /* testui */
	return on;
}

/* How a notification names CPU as its destination. */
static u32 destination(int cpu)
{
	u32 id = per_cpu(x86_cpu_to_apicid, cpu);

	return x2apic_mode ? id : id << 8;
}

/*
 * Puts the state of THREAD, which is the current one, into the processor. Interrupts are off.
 *
 * Senders see the destination and no SN first, and post with a notification from then on. What they posted before is
 * taken afterwards: so each vector is either found here or followed by a notification that arrives here.
 */
static void load(struct thread *thread)
{
	struct process *process = thread->process;
	int cpu = smp_processor_id();
	u8 vector = 0;
	u64 pending = 0;

	if (thread->upid) {
		bool delegates = thread->timer_kind == HEDDLE_UINTR_TIMER_APIC;
		u64 state = (u64)destination(cpu) << 32 | NOTIFICATION_VECTOR << 16;

		vector = NOTIFICATION_VECTOR;
		if (thread->cpu != cpu) {
			atomic64_inc(&process->migrated);
			/* Before the state: who finds no ON there notifies this CPU. */
			WRITE_ONCE(thread->cpu, cpu);
		}
		/* ON goes: a notification that is still on its way to another CPU is lost. */
		xchg(&thread->upid->state, delegates ? state | UPID_SN : state);
		/* With a delegated timer, posted vectors are what makes a tick one. */
		if (!delegates)
			pending = xchg(&thread->upid->pir, 0);
		if (pending)
			atomic64_inc(&process->resumed);
#ifdef UINTR_SABOTAGE
		pending = 0;
#endif
		pending |= thread->rr;
		wrmsrl(MSR_UINTR_HANDLER, thread->handler);
		wrmsrl(MSR_UINTR_STACKADJUST, thread->stack_adjust);
		wrmsrl(MSR_UINTR_PD, (u64)thread->upid);
		set_uif(thread->uif);
	}
	wrmsrl(MSR_UINTR_TT, (u64)process->targets | UINTR_TT_ENABLE);
	wrmsrl(MSR_UINTR_MISC, (u64)vector << 32 | (MAX_TARGETS - 1));
	wrmsrl(MSR_UINTR_RR, pending);
	thread->loaded = true;
	uintr_delegate(thread);
}

/* Takes the state of THREAD, which is the current one, out of the processor. Interrupts are off. */
static void unload(struct thread *thread)
{
	if (!thread->loaded)
		return;
	uintr_undelegate(thread);
	thread->loaded = false;
	/* No notification is taken from here on, and no target reached. */
	wrmsrl(MSR_UINTR_MISC, 0);
	wrmsrl(MSR_UINTR_TT, 0);
	if (!thread->upid)
		return;
	rdmsrl(MSR_UINTR_RR, thread->rr);
	wrmsrl(MSR_UINTR_RR, 0);
	thread->uif = get_uif();
	set_bit(ilog2(UPID_SN), (unsigned long *)&thread->upid->state);
}

/* The kind of timer of THREAD, the current one, has changed. Interrupts are off. */
void uintr_reload(struct thread *thread)
{
	unload(thread);
	load(thread);
}

/* Makes what is posted to THREAD, the current one, pending, as a notification would. Interrupts are off. */
void uintr_take_posted(struct thread *thread)
{
	u64 pending;

	rdmsrl(MSR_UINTR_RR, pending);
	wrmsrl(MSR_UINTR_RR, pending | xchg(&thread->upid->pir, 0));
}

static void sched_in(struct preempt_notifier *notifier, int cpu)
{
	struct thread *thread = container_of(notifier, struct thread, notifier);
	unsigned long flags;

	local_irq_save(flags);
	load(thread);
	local_irq_restore(flags);
	uintr_timer_follow(thread);
}

static void sched_out(struct preempt_notifier *notifier, struct task_struct *next)
{
	unload(container_of(notifier, struct thread, notifier));
}

static struct preempt_ops ops = { .sched_in = sched_in, .sched_out = sched_out };

/* Returns TASK's registration, or NULL. TASK is the current one. */
struct thread *uintr_thread_of(struct task_struct *task)
{
	struct preempt_notifier *notifier;

	hlist_for_each_entry(notifier, &task->preempt_notifiers, link)
		if (notifier->ops == &ops)
			return container_of(notifier, struct thread, notifier);
	return NULL;
}

/*
 * Posts VECTOR to THREAD as SENDUIPI would. Interrupts are off.
 *
 * A notification to the wrong CPU is no harm: the thread has left, and takes what is posted where it comes back.
 */
void uintr_post(struct thread *thread, u32 vector)
{
	struct uintr_upid *upid = thread->upid;
	u64 state;

	set_bit(vector, (unsigned long *)&upid->pir);
	state = READ_ONCE(upid->state);
	do {
		if (state & (UPID_ON | UPID_SN))
			return;
	} while (!try_cmpxchg64(&upid->state, &state, state | UPID_ON));
	apic->send_IPI(READ_ONCE(thread->cpu), NOTIFICATION_VECTOR);
}

static void thread_free(struct kref *refs)
{
	kfree(container_of(refs, struct thread, refs));
}

void uintr_thread_put(struct thread *thread)
{
	kref_put(&thread->refs, thread_free);
}

/* Ends the registration of THREAD, the current one. Does not sleep: also called where threads exit. */
static void end(struct thread *thread)
{
	struct process *process = thread->process;
	unsigned long flags;

	uintr_timer_stop(thread);
	preempt_disable();
	preempt_notifier_unregister(&thread->notifier);
	local_irq_save(flags);
	unload(thread);
	local_irq_restore(flags);
	preempt_enable();
	preempt_notifier_dec();
	/* SN stays set: what is sent from now on is lost, and causes no notification. */
	smp_store_release(&thread->dead, true);
	uintr_thread_put(thread);
	atomic_dec(&threads);
	uintr_process_put(process);
	module_put(THIS_MODULE);
}

/* Ends the registration of the current thread, if it has one. */
void uintr_end_current(void)
{
	struct thread *thread = uintr_thread_of(current);

	if (thread)
		end(thread);
}

static void nothing(void *unused)
{
}

/*
 * Waits until no SENDUIPI that has read an old entry of the table is under way. Such an instruction ends before its
 * processor takes an interrupt. Only CPUs that run the process are interrupted: it pays for that itself.
 */
static void await_senders(struct process *process)
{
	on_each_cpu_mask(mm_cpumask(process->mm), nothing, NULL, true);
}

/* Ends what is left of the thread that had the place NUMBER. The process is locked, or about to be freed. */
static void clear_place(struct process *process, u32 number)
{
	struct thread *thread = process->receivers[number];

	process->receivers[number] = NULL;
	/*
	 * Another thread may have set it as this one ended. A tick would set ON in the descriptor of the next thread and
	 * notify the wrong CPU, and the next thread would hear nothing more.
	 */
	hrtimer_cancel(&thread->timer);
	uintr_thread_put(thread);
}

static bool is_dead(struct process *process, u32 number)
{
	struct thread *thread = process->receivers[number];

	return thread && smp_load_acquire(&thread->dead);
}

/* Returns the number of a place that nothing leads to, or MAX_RECEIVERS. The process is locked. */
static u32 free_place(struct process *process)
{
	DECLARE_BITMAP(taken, MAX_RECEIVERS);
	u32 i;

	bitmap_zero(taken, MAX_RECEIVERS);
	for (i = 0; i < MAX_RECEIVERS; i++)
		if (process->receivers[i] && !is_dead(process, i))
			__set_bit(i, taken);
	for (i = 0; i < process->used; i++)
		if (process->targets[i].what)
			__set_bit((process->targets[i].upid - (u64)process->upids) / sizeof(struct uintr_upid), taken);
	return find_first_zero_bit(taken, MAX_RECEIVERS);
}

static bool is_address(u64 address)
{
	return address < TASK_SIZE_MAX;
}

/* Gives the process its tables, which it needs from its first thread on. The process is locked. */
static int make_tables(struct process *process)
{
	const gfp_t flags = GFP_KERNEL_ACCOUNT | __GFP_ZERO;

	if (!process->upids)
		process->upids = kmalloc_array(MAX_RECEIVERS, sizeof(struct uintr_upid), flags);
	if (!process->receivers)
		process->receivers = kmalloc_array(MAX_RECEIVERS, sizeof(struct thread *), flags);
	if (!process->targets)
		process->targets = kmalloc_array(MAX_TARGETS, sizeof(struct uintr_uitte), flags);
	return process->upids && process->receivers && process->targets ? 0 : -ENOMEM;
}

/* Makes THREAD a receiver with this number: of one that has ended, or any free one. The process is locked. */
static int become_receiver(struct thread *thread, u32 number)
{
	struct process *process = thread->process;

	if (number == HEDDLE_UINTR_NONE) {
		number = free_place(process);
		if (number == MAX_RECEIVERS)
			return -EAGAIN;
	} else if (number >= MAX_RECEIVERS || !process->receivers[number]) {
		return -ENOENT;
	} else if (!is_dead(process, number)) {
		return -EBUSY;
	}
	if (process->receivers[number])
		clear_place(process, number);
	thread->number = number;
	thread->upid = &process->upids[number];
	/* What was sent to the one before is dropped. */
	WRITE_ONCE(thread->upid->state, UPID_SN);
	WRITE_ONCE(thread->upid->pir, 0);
	process->receivers[number] = thread;
	kref_get(&thread->refs);
	return 0;
}

/* Returns the receiver with this number, if its thread lives. The process is locked. */
struct thread *uintr_receiver(struct process *process, u32 number)
{
	if (!process->receivers || number >= MAX_RECEIVERS || is_dead(process, number))
		return NULL;
	return process->receivers[number];
}

int uintr_register(struct process *process, struct heddle_uintr_register *what)
{
	bool receives = what->flags & HEDDLE_UINTR_RECEIVE;
	struct thread *thread;
	unsigned long flags;
	int status;

	if (what->flags & ~HEDDLE_UINTR_RECEIVE || what->reserved[0] || what->reserved[1])
		return -EINVAL;
	if (receives ? !is_address(what->handler) || !what->handler || !is_address(what->stack_adjust) :
		       what->handler || what->stack_adjust || what->receiver != HEDDLE_UINTR_NONE)
		return -EINVAL;
	if (uintr_thread_of(current))
		return -EBUSY;
	if (!atomic_add_unless(&threads, 1, max_threads))
		return -EAGAIN;
	thread = kzalloc(sizeof(*thread), GFP_KERNEL_ACCOUNT);
	if (!thread) {
		atomic_dec(&threads);
		return -ENOMEM;
	}
	kref_init(&thread->refs);
	thread->process = process;
	thread->task = current;
	thread->number = HEDDLE_UINTR_NONE;
	thread->handler = what->handler;
	thread->stack_adjust = what->stack_adjust;
	thread->uif = true;
	thread->cpu = raw_smp_processor_id();
	uintr_timer_init(thread);

	mutex_lock(&process->lock);
	status = make_tables(process);
	if (!status && receives)
		status = become_receiver(thread, what->receiver);
	mutex_unlock(&process->lock);
	if (status) {
		uintr_thread_put(thread);
		atomic_dec(&threads);
		return status;
	}

	/* The open file keeps process and module until here. */
	kref_get(&process->refs);
	__module_get(THIS_MODULE);
	preempt_notifier_inc();
	preempt_notifier_init(&thread->notifier, &ops);
	preempt_disable();
	preempt_notifier_register(&thread->notifier);
	local_irq_save(flags);
	load(thread);
	local_irq_restore(flags);
	preempt_enable();
	what->receiver = thread->number;
	return 0;
}

int uintr_unregister(struct process *process)
{
	struct thread *thread = uintr_thread_of(current);

	if (!thread || thread->process != process)
		return -ENOENT;
	end(thread);
	return 0;
}

int uintr_connect(struct process *process, struct heddle_uintr_target *what)
{
	struct uintr_uitte new = { .what = UITTE_VALID | (u64)what->vector << 8 };
	int status = 0;
	u32 i, free = MAX_TARGETS;

	if (what->vector >= HEDDLE_UINTR_VECTORS || what->reserved)
		return -EINVAL;
	mutex_lock(&process->lock);
	if (!uintr_receiver(process, what->receiver)) {
		status = -ENOENT;
		goto out;
	}
	new.upid = (u64)&process->upids[what->receiver];
	for (i = 0; i < process->used; i++) {
		struct uintr_uitte *target = &process->targets[i];

		if (target->what == new.what && target->upid == new.upid)
			goto found;
		if (!target->what && free == MAX_TARGETS)
			free = i;
	}
	if (free != MAX_TARGETS)
		i = free;
	if (i == MAX_TARGETS) {
		status = -ENOSPC;
		goto out;
	}
	/* An entry is read in two parts: the first makes it valid. */
	WRITE_ONCE(process->targets[i].upid, new.upid);
	smp_wmb();
	WRITE_ONCE(process->targets[i].what, new.what);
	process->used = max(process->used, i + 1);
found:
	what->index = i;
out:
	mutex_unlock(&process->lock);
	return status;
}

int uintr_disconnect(struct process *process, u32 index)
{
	int status = -ENOENT;

	mutex_lock(&process->lock);
	if (index < process->used && process->targets[index].what) {
		WRITE_ONCE(process->targets[index].what, 0);
		await_senders(process);
		status = 0;
	}
	mutex_unlock(&process->lock);
	return status;
}

struct process *uintr_process_new(void)
{
	struct process *process = kzalloc(sizeof(*process), GFP_KERNEL_ACCOUNT);

	if (!process)
		return NULL;
	kref_init(&process->refs);
	mutex_init(&process->lock);
	process->mm = current->mm;
	mmgrab(process->mm);
	atomic_inc(&processes);
	return process;
}

static void process_free(struct kref *refs)
{
	struct process *process = container_of(refs, struct process, refs);
	u32 i;

	/* No thread has the tables in a processor any more. */
	for (i = 0; process->receivers && i < MAX_RECEIVERS; i++)
		if (process->receivers[i])
			clear_place(process, i);
	kfree(process->receivers);
	kfree(process->upids);
	kfree(process->targets);
	mmdrop(process->mm);
	kfree(process);
	atomic_dec(&processes);
}

void uintr_process_put(struct process *process)
{
	kref_put(&process->refs, process_free);
}
