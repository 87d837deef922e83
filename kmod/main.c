// SPDX-License-Identifier: GPL-2.0
/*
 * Heddle's module for user interrupts: the device, and what a machine needs.
 */
#include <linux/cpu.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/tracepoint.h>
#include <linux/uaccess.h>
#include <linux/version.h>
#include <asm/apic.h>
#include <asm/cpufeature.h>
#include <asm/tlbflush.h>

#include "uintr.h"

#if !IS_ENABLED(CONFIG_KVM) || !IS_ENABLED(CONFIG_PREEMPT_NOTIFIERS)
#error "heddle_uintr needs a kernel with KVM (CONFIG_KVM, also as a module): it uses a vector and a callback of KVM's"
#endif

unsigned int max_threads = 4096;
module_param(max_threads, uint, 0644);
MODULE_PARM_DESC(max_threads, "threads that may be registered at a time, in all processes");

unsigned int min_period_us = 10;
module_param(min_period_us, uint, 0644);
MODULE_PARM_DESC(min_period_us, "the shortest period of a timer, in microseconds");

module_param(keeper, uint, 0444);
MODULE_PARM_DESC(keeper, "CPU that keeps the clocks of those whose timers are delegated, and is not delegated itself");

static int device_open(struct inode *inode, struct file *file)
{
	struct process *process;

	if (!current->mm)
		return -EINVAL;
	process = uintr_process_new();
	if (!process)
		return -ENOMEM;
	file->private_data = process;
	return 0;
}

static int device_release(struct inode *inode, struct file *file)
{
	uintr_process_put(file->private_data);
	return 0;
}

/* Part EDX of the CPU's description of its extended features. */
static u32 features(u32 leaf)
{
	u32 eax, ebx, ecx, edx;

	cpuid_count(7, leaf, &eax, &ebx, &ecx, &edx);
	return edx;
}

static void inform(struct process *process, struct heddle_uintr_info *info)
{
	info->version = HEDDLE_UINTR_VERSION;
	if (features(1) & BIT(17))
		info->features |= HEDDLE_UINTR_UIRET_UIF;
	if (x2apic_mode)
		info->features |= HEDDLE_UINTR_X2APIC;
	if (num_online_cpus() > 1)
		info->features |= HEDDLE_UINTR_APIC_TIMER;
	info->max_threads = max_threads;
	info->max_targets = MAX_TARGETS;
	info->threads = uintr_threads();
	info->processes = uintr_processes();
	info->min_period_ns = (u64)min_period_us * NSEC_PER_USEC;
	info->resumed = atomic64_read(&process->resumed);
	info->migrated = atomic64_read(&process->migrated);
	info->ticks = atomic64_read(&process->ticks);
	info->ticks_merged = atomic64_read(&process->ticks_merged);
}

static long device_ioctl(struct file *file, unsigned int request, unsigned long argument)
{
	struct process *process = file->private_data;
	void __user *at = (void __user *)argument;
	union {
		struct heddle_uintr_info info;
		struct heddle_uintr_register registration;
		struct heddle_uintr_target target;
		struct heddle_uintr_timer timer;
		u32 index;
	} what = {};
	int status;

	if (process->mm != current->mm)
		return -ESTALE;
	if (_IOC_TYPE(request) != HEDDLE_UINTR_MAGIC || _IOC_SIZE(request) > sizeof(what))
		return -ENOTTY;
	if (_IOC_DIR(request) & _IOC_WRITE && copy_from_user(&what, at, _IOC_SIZE(request)))
		return -EFAULT;
	switch (request) {
	case HEDDLE_UINTR_INFO:
		inform(process, &what.info);
		status = 0;
		break;
	case HEDDLE_UINTR_REGISTER:
		status = uintr_register(process, &what.registration);
		break;
	case HEDDLE_UINTR_UNREGISTER:
		status = uintr_unregister(process);
		break;
	case HEDDLE_UINTR_CONNECT:
		status = uintr_connect(process, &what.target);
		break;
	case HEDDLE_UINTR_DISCONNECT:
		status = uintr_disconnect(process, what.index);
		break;
	case HEDDLE_UINTR_TIMER:
		status = uintr_timer_set(process, &what.timer);
		break;
	default:
		return -ENOTTY;
	}
	if (!status && _IOC_DIR(request) & _IOC_READ && copy_to_user(at, &what, _IOC_SIZE(request))) {
		if (request == HEDDLE_UINTR_REGISTER)
			uintr_end_current();
		return -EFAULT;
	}
	return status;
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.open = device_open,
	.release = device_release,
	.unlocked_ioctl = device_ioctl,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "heddle-uintr",
	.fops = &operations,
	.mode = 0666, /* a process reaches nothing but itself */
};

/* Where threads end: the kernel calls these in the thread, whatever ended it. They are given more than they take. */

static void on_exit(void *unused, struct task_struct *task)
{
	uintr_end_current();
}

static void on_exec(void *unused, struct task_struct *task)
{
	uintr_end_current();
}

static struct {
	const char *name;
	void *probe;
	struct tracepoint *tracepoint;
} ends[] = {
	{ "sched_process_exit", on_exit },
	{ "sched_process_exec", on_exec },
};

static void find_tracepoint(struct tracepoint *tracepoint, void *unused)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(ends); i++)
		if (!strcmp(tracepoint->name, ends[i].name))
			ends[i].tracepoint = tracepoint;
}

static void unwatch(int count)
{
	while (count-- > 0)
		tracepoint_probe_unregister(ends[count].tracepoint, ends[count].probe, NULL);
	tracepoint_synchronize_unregister();
}

static int watch(void)
{
	int i, status;

	for_each_kernel_tracepoint(find_tracepoint, NULL);
	for (i = 0; i < ARRAY_SIZE(ends); i++) {
		status = ends[i].tracepoint ? tracepoint_probe_register(ends[i].tracepoint, ends[i].probe, NULL) :
					      -ENOENT;
		if (status) {
			pr_err("heddle_uintr: the kernel's tracepoint %s cannot be used (%d)\n", ends[i].name, status);
			unwatch(i);
			return status;
		}
	}
	return 0;
}

static int cpu_on(unsigned int cpu)
{
	cr4_set_bits(CR4_UINTR);
	return 0;
}

static int cpu_off(unsigned int cpu)
{
	if (uintr_is_keeping(cpu))
		return -EBUSY;
	cr4_clear_bits(CR4_UINTR);
	return 0;
}

/* Returns why this machine cannot have user interrupts, or NULL. */
static const char *why_not(void)
{
	if (!boot_cpu_has(X86_FEATURE_APIC) || cpuid_eax(0) < 7 || !(features(0) & BIT(5)))
		return "this CPU has no user interrupts (UINTR: Intel Sapphire Rapids, Arrow Lake and later)";
	if (boot_cpu_has(X86_FEATURE_PTI))
		return "the kernel isolates its page tables (PTI), in which CPUs look for the descriptors: boot with nopti";
#ifdef X86_FEATURE_FRED
	if (cpu_feature_enabled(X86_FEATURE_FRED))
		return "the kernel uses FRED, with which this module was never tried: boot with fred=off";
#endif
	if (__read_cr4() & CR4_UINTR)
		return "something else uses user interrupts already";
	return NULL;
}

static int hotplug;

static int __init uintr_init(void)
{
	const char *why = why_not();
	int status;

	if (why) {
		pr_err("heddle_uintr: not loaded: %s\n", why);
		return -ENODEV;
	}
	if (keeper >= nr_cpu_ids || !cpu_online(keeper)) {
		pr_err("heddle_uintr: not loaded: keeper=%u is no CPU that is online\n", keeper);
		return -EINVAL;
	}
	status = uintr_timers_start();
	if (status)
		return status;
	status = watch();
	if (status)
		goto no_watch;
	hotplug = cpuhp_setup_state(CPUHP_AP_ONLINE_DYN, "heddle/uintr:online", cpu_on, cpu_off);
	status = hotplug;
	if (status < 0)
		goto no_cpus;
	status = misc_register(&device);
	if (status)
		goto no_device;
	pr_info("heddle_uintr: user interrupts are available, version %u\n", HEDDLE_UINTR_VERSION);
	return 0;

no_device:
	cpuhp_remove_state(hotplug);
no_cpus:
	unwatch(ARRAY_SIZE(ends));
no_watch:
	uintr_timers_stop();
	return status;
}

static void __exit uintr_exit(void)
{
	misc_deregister(&device);
	cpuhp_remove_state(hotplug);
	unwatch(ARRAY_SIZE(ends));
	uintr_timers_stop();
}

module_init(uintr_init);
module_exit(uintr_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("User interrupts for Heddle on unpatched kernels");
MODULE_VERSION("1");
