/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* What a thread sleeps in, or wakes another by: its system call. */
#ifndef HEDDLE_OBSERVE_SPANS_CALLS_H
#define HEDDLE_OBSERVE_SPANS_CALLS_H

#include "maps.h"

static __always_inline __u32 reason_of(struct task_struct *p)
{
	struct pt_regs *regs = bpf_task_pt_regs(p);
	struct ob_reasons *of;
	__u32 zero = 0;
	__s64 number = -1;

	if (!regs)
		return OB_OTHER;
	if (bpf_core_field_exists(regs->orig_ax))
		number = regs->orig_ax;
	else if (bpf_core_field_exists(regs->syscallno))
		number = regs->syscallno;
	of = bpf_map_lookup_elem(&reasons, &zero);
	if (!of || number < 0 || number >= OB_SYSCALLS)
		return OB_OTHER;
	return of->of[number & (OB_SYSCALLS - 1)];
}

/* Whether the first argument of a thread's system call is the descriptor of a socket. */
static __noinline bool is_to_socket(struct task_struct *p)
{
	struct pt_regs *regs = bpf_task_pt_regs(p);
	struct fdtable *table;
	struct file **files, *file = NULL;
	struct inode *inode = NULL;
	__u64 fd = 0;
	__u16 mode = 0;

	if (bpf_core_field_exists(regs->di))
		fd = regs->di;
	else if (bpf_core_field_exists(regs->orig_x0))
		fd = regs->orig_x0;
	table = p->files->fdt;
	if (fd >= table->max_fds)
		return false;
	files = table->fd;
	bpf_probe_read_kernel(&file, sizeof file, &files[fd]);
	bpf_probe_read_kernel(&inode, sizeof inode, &file->f_inode);
	bpf_probe_read_kernel(&mode, sizeof mode, &inode->i_mode);
	return (mode & S_IFMT) == S_IFSOCK;
}

/* Whether `waker`, by its system call, passes something on to `p`, by its own: not so an interrupt that comes while
 * `waker` runs. An answer may wake a client in the same process: a pipe or an eventfd passes a turn on, a socket does
 * not. */
static __always_inline bool passes_on(struct task_struct *waker, struct task_struct *p)
{
	__u32 to = reason_of(p), by = reason_of(waker);

	if (to == OB_FUTEX)
		return by == OB_FUTEX;
	return (to == OB_READ || to == OB_IDLE) && by == OB_WRITE && !is_to_socket(waker);
}

#endif
