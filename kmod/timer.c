// SPDX-License-Identifier: GPL-2.0
/*
 * The timers of threads: the kernel's, or the CPU's own, delegated.
 *
 * A delegated timer (Skyloft, section 3.2) makes the vector of the kernel's timer interrupt the one that the processor
 * takes for a notification. The kernel would lose its clock on that CPU, so it has it back whenever the thread leaves
 * the CPU and each jiffy: an interrupt from the keeper, a CPU whose own timer is never delegated, gives it back, the
 * kernel's own handler runs, and another interrupt delegates it again. On the keeper itself the kernel's timer takes
 * the place of the delegated one.
 */
#include <linux/capability.h>
#include <linux/cpu.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/version.h>
#include <asm/apic.h>
#include <asm/msr.h>

#include "uintr.h"

/* A day. */
#define LONGEST_NS (86400ULL * NSEC_PER_SEC)

/* The CPU that keeps the clocks of others, and runs their work. */
unsigned int keeper;
static struct workqueue_struct *keepers;

/* Threads that have a delegated timer. */
static atomic_t delegations = ATOMIC_INIT(0);

bool uintr_is_keeping(unsigned int cpu)
{
	return cpu == keeper && atomic_read(&delegations);
}

int uintr_timers_start(void)
{
	keepers = alloc_workqueue("heddle_uintr", WQ_HIGHPRI, 0);
	return keepers ? 0 : -ENOMEM;
}

void uintr_timers_stop(void)
{
	destroy_workqueue(keepers);
}

/* The local APIC without the kernel's static calls, which are not for modules. */

static u32 lapic_read(u32 reg)
{
	u64 value;

	if (!x2apic_mode)
		return native_apic_mem_read(reg);
	rdmsrl(APIC_BASE_MSR + (reg >> 4), value);
	return value;
}

static void lapic_write(u32 reg, u32 value)
{
	if (x2apic_mode)
		wrmsrl(APIC_BASE_MSR + (reg >> 4), value);
	else
		native_apic_mem_write(reg, value);
}

/*
 * Whether the timer of THREAD, which has just ticked, is to rest until the thread has a CPU again: one tick is posted,
 * and more would cost the CPU and tell nothing.
 */
static bool rests(struct thread *thread)
{
	unsigned long flags;
	bool rests;

	raw_spin_lock_irqsave(&thread->timer_lock, flags);
	rests = !READ_ONCE(thread->loaded);
	thread->timer_rests = rests;
	raw_spin_unlock_irqrestore(&thread->timer_lock, flags);
	return rests;
}

static enum hrtimer_restart tick(struct hrtimer *timer)
{
	struct thread *thread = container_of(timer, struct thread, timer);
	struct process *process = thread->process;

	switch (READ_ONCE(thread->timer_kind)) {
	case HEDDLE_UINTR_TIMER_APIC:
		/* On the keeper: its ticks end when the thread leaves, and begin anew when it comes back. */
		if (current != thread->task || !thread->loaded || thread->delegated)
			return HRTIMER_NORESTART;
		atomic64_inc(&process->ticks);
		uintr_take_posted(thread);
		break;
	case HEDDLE_UINTR_TIMER_HR:
		atomic64_inc(&process->ticks);
		if (test_bit(thread->timer_vector, (unsigned long *)&thread->upid->pir))
			atomic64_inc(&process->ticks_merged);
		uintr_post(thread, thread->timer_vector);
		if (thread->once || rests(thread))
			return HRTIMER_NORESTART;
		break;
	default: /* It is being stopped. */
		return HRTIMER_NORESTART;
	}
	hrtimer_forward_now(timer, ns_to_ktime(thread->period_ns));
	return HRTIMER_RESTART;
}

/* Delegates the timer of this CPU to THREAD, which is loaded. Interrupts are off. */
void uintr_delegate(struct thread *thread)
{
	if (thread->timer_kind != HEDDLE_UINTR_TIMER_APIC || thread->delegated || smp_processor_id() == keeper)
		return;
	thread->delegated = true;
	thread->kernel_lvtt = lapic_read(APIC_LVTT);
	thread->kernel_tdcr = lapic_read(APIC_TDCR);
	lapic_write(APIC_LVTT, APIC_LVT_MASKED | LOCAL_TIMER_VECTOR);
	lapic_write(APIC_TDCR, APIC_TDR_DIV_1);
	lapic_write(APIC_LVTT, APIC_LVT_TIMER_PERIODIC | LOCAL_TIMER_VECTOR);
	lapic_write(APIC_TMICT, thread->apic_count);
	wrmsrl(MSR_UINTR_MISC, (u64)LOCAL_TIMER_VECTOR << 32 | (MAX_TARGETS - 1));
}

/* Gives the timer of this CPU back to the kernel, and lets it look at its clock. Interrupts are off. */
void uintr_undelegate(struct thread *thread)
{
	if (!thread->delegated)
		return;
	thread->delegated = false;
	wrmsrl(MSR_UINTR_MISC, (u64)NOTIFICATION_VECTOR << 32 | (MAX_TARGETS - 1));
	lapic_write(APIC_TMICT, 0);
	lapic_write(APIC_TDCR, thread->kernel_tdcr);
	lapic_write(APIC_LVTT, thread->kernel_lvtt);
	/* Before a deadline is written (the manual, "TSC-Deadline Mode"). */
	mb();
	apic->send_IPI(smp_processor_id(), LOCAL_TIMER_VECTOR);
}

/* On the thread's CPU, in an interrupt: the kernel's handler runs as soon as this one returns. */
static void give_back(void *info)
{
	struct thread *thread = info;

	if (current == thread->task && thread->loaded)
		uintr_undelegate(thread);
}

/* Whether this CPU has yet to take the interrupt of the kernel's timer. */
static bool is_tick_pending(void)
{
	return lapic_read(APIC_IRR + LOCAL_TIMER_VECTOR / 32 * 0x10) & BIT(LOCAL_TIMER_VECTOR % 32);
}

/* On the thread's CPU, in an interrupt, after give_back. */
static void take_again(void *info)
{
	struct thread *thread = info;

	if (current == thread->task && thread->loaded && !is_tick_pending())
		uintr_delegate(thread);
}

static void put_keeper(struct thread *thread)
{
	uintr_thread_put(thread);
	module_put(THIS_MODULE);
}

/* Has the keeper look after the thread a jiffy from now. Takes a reference of the caller's. */
static void queue_keeper(struct thread *thread)
{
	if (!queue_delayed_work_on(keeper, keepers, &thread->keeper, 1))
		put_keeper(thread); /* it does already */
}

/*
 * On the keeper, each jiffy. take_again leaves the timer to the kernel if that has not looked yet; then it has it until
 * the next jiffy.
 */
static void keep(struct work_struct *work)
{
	struct thread *thread = container_of(to_delayed_work(work), struct thread, keeper);

	if (READ_ONCE(thread->timer_kind) != HEDDLE_UINTR_TIMER_APIC)
		return put_keeper(thread);
	/* These fail if the CPU has gone offline, and then the thread is elsewhere. */
	if (!smp_call_function_single(READ_ONCE(thread->cpu), give_back, thread, true))
		smp_call_function_single(READ_ONCE(thread->cpu), take_again, thread, true);
	queue_keeper(thread);
}

void uintr_timer_init(struct thread *thread)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 15, 0)
	hrtimer_setup(&thread->timer, tick, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
#else
	hrtimer_init(&thread->timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
	thread->timer.function = tick;
#endif
	mutex_init(&thread->setting);
	raw_spin_lock_init(&thread->timer_lock);
	INIT_DELAYED_WORK(&thread->keeper, keep);
}

/* Measures how far the CPU's timer counts in a millisecond, once. Takes that long, with interrupts off. */
static u32 counts_per_ms(void)
{
	static u32 measured;
	unsigned long flags;
	u32 lvtt, tdcr;
	u64 begin;

	if (READ_ONCE(measured))
		return measured;
	local_irq_save(flags);
	lvtt = lapic_read(APIC_LVTT);
	tdcr = lapic_read(APIC_TDCR);
	lapic_write(APIC_LVTT, APIC_LVT_MASKED | LOCAL_TIMER_VECTOR);
	lapic_write(APIC_TDCR, APIC_TDR_DIV_1);
	begin = ktime_get_ns();
	lapic_write(APIC_TMICT, U32_MAX);
	while (ktime_get_ns() - begin < NSEC_PER_MSEC)
		cpu_relax();
	WRITE_ONCE(measured, U32_MAX - lapic_read(APIC_TMCCT));
	lapic_write(APIC_TMICT, 0);
	lapic_write(APIC_TDCR, tdcr);
	lapic_write(APIC_LVTT, lvtt);
	mb();
	apic->send_IPI(smp_processor_id(), LOCAL_TIMER_VECTOR);
	local_irq_restore(flags);
	return measured;
}

/* Stops the timer of THREAD, the current one. Does not sleep. */
void uintr_timer_stop(struct thread *thread)
{
	unsigned long flags;

	local_irq_save(flags);
	uintr_undelegate(thread);
	if (thread->timer_kind == HEDDLE_UINTR_TIMER_APIC)
		atomic_dec(&delegations);
	WRITE_ONCE(thread->timer_kind, HEDDLE_UINTR_TIMER_OFF);
	local_irq_restore(flags);
	hrtimer_cancel(&thread->timer);
}

static int set_apic_timer(struct thread *thread, const struct heddle_uintr_timer *what)
{
	u64 count;
	unsigned long flags;

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	count = mul_u64_u64_div_u64(what->period_ns, counts_per_ms(), NSEC_PER_MSEC);
	if (!count || count > U32_MAX)
		return -ERANGE;
	uintr_timer_stop(thread);
	atomic_inc(&delegations);
	local_irq_save(flags);
	thread->apic_count = count;
	thread->period_ns = what->period_ns;
	WRITE_ONCE(thread->timer_kind, HEDDLE_UINTR_TIMER_APIC);
	/* The first tick finds something posted. */
	set_bit(what->vector, (unsigned long *)&thread->upid->pir);
	uintr_reload(thread);
	local_irq_restore(flags);
	preempt_disable();
	uintr_timer_follow(thread);
	preempt_enable();
	kref_get(&thread->refs);
	__module_get(THIS_MODULE);
	queue_keeper(thread);
	return 0;
}

/* Has the kernel's timer of THREAD tick a period from now, on this CPU. Its lock is held. */
static void start_hr_timer(struct thread *thread)
{
	thread->timer_rests = false;
	thread->timer_cpu = smp_processor_id();
	hrtimer_start(&thread->timer, ns_to_ktime(thread->period_ns), HRTIMER_MODE_REL_PINNED_HARD);
}

/* Sets the kernel's timer for THREAD, any one of the process. No other thread sets it meanwhile. */
static void set_hr_timer(struct thread *thread, const struct heddle_uintr_timer *what)
{
	unsigned long flags;

	/* No tick is under way while the fields change. */
	hrtimer_cancel(&thread->timer);
	WRITE_ONCE(thread->timer_kind, what->kind);
	if (what->kind == HEDDLE_UINTR_TIMER_OFF)
		return;
	thread->timer_vector = what->vector;
	thread->period_ns = what->period_ns;
	thread->once = what->flags & HEDDLE_UINTR_TIMER_ONCE;
	/* The thread may come to a CPU meanwhile, and moves the timer there. */
	raw_spin_lock_irqsave(&thread->timer_lock, flags);
	start_hr_timer(thread);
	raw_spin_unlock_irqrestore(&thread->timer_lock, flags);
}

/* Sets the timer of THREAD, of which OWN, the current one, may be another. No other thread sets it meanwhile. */
static int set_timer(struct thread *thread, struct thread *own, const struct heddle_uintr_timer *what)
{
	unsigned long flags;

	if (thread != own && (what->kind == HEDDLE_UINTR_TIMER_APIC ||
			      READ_ONCE(thread->timer_kind) == HEDDLE_UINTR_TIMER_APIC))
		return -EBUSY;
	if (what->kind == HEDDLE_UINTR_TIMER_APIC)
		return set_apic_timer(thread, what);
	if (thread->timer_kind == HEDDLE_UINTR_TIMER_APIC) {
		uintr_timer_stop(thread);
		/* What was held back for a delegated timer's tick is delivered now. */
		local_irq_save(flags);
		uintr_reload(thread);
		local_irq_restore(flags);
	}
	set_hr_timer(thread, what);
	return 0;
}

int uintr_timer_set(struct process *process, const struct heddle_uintr_timer *what)
{
	struct thread *own = uintr_thread_of(current), *thread;
	bool is_own, once = what->flags & HEDDLE_UINTR_TIMER_ONCE;
	/* One tick costs who asks for it a call; those that follow cost the machine. */
	u64 shortest = once ? 1 : (u64)min_period_us * NSEC_PER_USEC;
	int status = -ENOENT;

	if (what->vector >= HEDDLE_UINTR_VECTORS || what->flags & ~HEDDLE_UINTR_TIMER_ONCE ||
	    what->kind > HEDDLE_UINTR_TIMER_APIC || (once && what->kind != HEDDLE_UINTR_TIMER_HR))
		return -EINVAL;
	if (what->kind != HEDDLE_UINTR_TIMER_OFF && (what->period_ns < shortest || what->period_ns > LONGEST_NS))
		return -ERANGE;
	is_own = own && own->process == process && own->upid &&
		 (what->receiver == HEDDLE_UINTR_NONE || what->receiver == own->number);
	/* Another thread must not go away meanwhile. */
	if (!is_own)
		mutex_lock(&process->lock);
	thread = is_own ? own : uintr_receiver(process, what->receiver);
	if (thread) {
		mutex_lock(&thread->setting);
		status = set_timer(thread, own, what);
		mutex_unlock(&thread->setting);
	}
	if (!is_own)
		mutex_unlock(&process->lock);
	return status;
}

/* THREAD, the current one, has come to a CPU: its timer follows. Interrupts are on, preemption is off. */
void uintr_timer_follow(struct thread *thread)
{
	unsigned long flags;

	if (thread->timer_kind == HEDDLE_UINTR_TIMER_APIC) {
		if (!thread->delegated)
			hrtimer_start(&thread->timer, ns_to_ktime(thread->period_ns), HRTIMER_MODE_REL_PINNED_HARD);
		return;
	}
	if (READ_ONCE(thread->timer_kind) != HEDDLE_UINTR_TIMER_HR)
		return;
	raw_spin_lock_irqsave(&thread->timer_lock, flags);
	if (thread->timer_rests)
		start_hr_timer(thread);
	else if (thread->timer_cpu != thread->cpu && hrtimer_try_to_cancel(&thread->timer) == 1)
		/* One that ticks at this moment stays where it is. */
		hrtimer_start_expires(&thread->timer, HRTIMER_MODE_ABS_PINNED_HARD);
	thread->timer_cpu = thread->cpu;
	raw_spin_unlock_irqrestore(&thread->timer_lock, flags);
}
