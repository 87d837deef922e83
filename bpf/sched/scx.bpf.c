// SPDX-License-Identifier: MIT OR GPL-2.0
/* Agents over sched_ext: the kernel side of `crates/agent/src/scx`.
 *
 * Threads that opt in (SCHED_EXT) and belong to an enclave are *parked* when they can run. The enclave's agent gets
 * a message and *commits* them to CPUs by running the program `hd_commit`. Everything here runs below ordinary
 * threads.
 *
 * I1 A thread is in the kernel queue that its status word names, or on its way there, moved by the holder of its run
 *    queue's lock or of its claim.
 * I2 No thread is moved to a CPU on which it may not run: that would end the scheduler. The queue's iterator is the
 *    guard, see latch.h and commit.h.
 * I3 Threads and CPUs outside of enclaves cost a read of one word. */
#include "scx/maps.h"
#include "scx/message.h"
#include "scx/slot.h"
#include "scx/words.h"
#include "scx/lifecycle.h"
#include "scx/park.h"
#include "scx/run.h"
#include "scx/member.h"
#include "scx/occupant.h"
#include "scx/machine.h"
#include "scx/latch.h"
#include "scx/pick.h"
#include "scx/commit.h"
#include "scx/group.h"
#include "scx/control.h"

/* A parked thread is in no CPU's queue, so the last CPU is as good as any; a commit moves it. Without this
 * operation the kernel would put a waking thread directly on an idle CPU. */
SEC("struct_ops/select_cpu")
__s32 hd_op_select_cpu(__u64 *ctx)
{
	return (__s32)ctx[1];
}

SEC("struct_ops/enqueue")
void hd_op_enqueue(__u64 *ctx)
{
	hd_on_enqueue((struct task_struct *)ctx[0], ctx[1]);
}

SEC("struct_ops/dispatch")
void hd_op_dispatch(__u64 *ctx)
{
	hd_on_dispatch((__s32)ctx[0]);
}

SEC("struct_ops/tick")
void hd_op_tick(__u64 *ctx)
{
	hd_on_tick((struct task_struct *)ctx[0]);
}

SEC("struct_ops/running")
void hd_op_running(__u64 *ctx)
{
	hd_on_running((struct task_struct *)ctx[0]);
}

SEC("struct_ops/stopping")
void hd_op_stopping(__u64 *ctx)
{
	hd_on_stopping((struct task_struct *)ctx[0], ctx[1] & 1);
}

SEC("struct_ops/quiescent")
void hd_op_quiescent(__u64 *ctx)
{
	hd_on_quiescent((struct task_struct *)ctx[0], ctx[1]);
}

SEC("struct_ops/yield")
bool hd_op_yield(__u64 *ctx)
{
	/* A yield to a particular thread is not ours to promise. */
	if (!ctx[1])
		hd_on_yield((struct task_struct *)ctx[0]);
	return false;
}

SEC("struct_ops/set_weight")
void hd_op_set_weight(__u64 *ctx)
{
	hd_on_weight((struct task_struct *)ctx[0], ctx[1]);
}

SEC("struct_ops/set_cpumask")
void hd_op_set_cpumask(__u64 *ctx)
{
	hd_on_cpumask((struct task_struct *)ctx[0]);
}

SEC("struct_ops/init_task")
__s32 hd_op_init_task(__u64 *ctx)
{
	struct scx_init_task_args *args = (void *)ctx[1];

	hd_on_init_task((struct task_struct *)ctx[0], args->fork);
	return 0;
}

SEC("struct_ops/enable")
void hd_op_enable(__u64 *ctx)
{
	hd_on_enable((struct task_struct *)ctx[0]);
}

SEC("struct_ops/disable")
void hd_op_disable(__u64 *ctx)
{
	hd_on_disable((struct task_struct *)ctx[0]);
}

/* With these two operations the kernel leaves CPUs that come and go to us; without them it would end the scheduler. */
SEC("struct_ops/cpu_online")
void hd_op_cpu_online(__u64 *ctx)
{
	hd_on_line(ctx[0], 1);
}

SEC("struct_ops/cpu_offline")
void hd_op_cpu_offline(__u64 *ctx)
{
	hd_on_line(ctx[0], 0);
	hd_unlatch(ctx[0], true);
}

SEC("struct_ops.s/init")
__s32 hd_op_init(__u64 *ctx)
{
	__s32 error = hd_make_queues();

	return error ? error : hd_start_beat();
}

SEC("struct_ops/exit")
void hd_op_exit(__u64 *ctx)
{
	hd_on_exit((struct scx_exit_info *)ctx[0]);
}

SEC(".struct_ops.link")
struct sched_ext_ops hd_ops = {
	.select_cpu = (void *)hd_op_select_cpu,
	.enqueue = (void *)hd_op_enqueue,
	.dispatch = (void *)hd_op_dispatch,
	.tick = (void *)hd_op_tick,
	.running = (void *)hd_op_running,
	.stopping = (void *)hd_op_stopping,
	.quiescent = (void *)hd_op_quiescent,
	.yield = (void *)hd_op_yield,
	.set_weight = (void *)hd_op_set_weight,
	.set_cpumask = (void *)hd_op_set_cpumask,
	.init_task = (void *)hd_op_init_task,
	.enable = (void *)hd_op_enable,
	.disable = (void *)hd_op_disable,
	.cpu_online = (void *)hd_op_cpu_online,
	.cpu_offline = (void *)hd_op_cpu_offline,
	.init = (void *)hd_op_init,
	.exit = (void *)hd_op_exit,
	.flags = SCX_OPS_SWITCH_PARTIAL | SCX_OPS_ENQ_LAST | SCX_OPS_ENQ_MIGRATION_DISABLED,
	/* The most that the kernel allows, as it ends the scheduler for all. Enclaves have a patience of their own. */
	.timeout_ms = HD_KERNELS_PATIENCE_MS,
	.name = "heddle",
};

char LICENSE[] SEC("license") = "Dual MIT/GPL";
