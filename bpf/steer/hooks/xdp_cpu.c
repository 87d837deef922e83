/* CPU Redirect: the policy chooses which CPU of its set carries a packet through the network stack. */
#include "xdp.h"

/* As many entries as the machine has CPUs: set at load time. */
HD_OWN_MAP(hd_executor, HD_KIND_CPUS, 4, 4, 1);

/* The CPU of each executor, plus one: policies know only the numbers of executors, so they cannot reach CPUs
 * outside their set. */
HD_OWN_MAP(hd_cpus, HD_KIND_ARRAY, 4, 8, HD_FEW);
typedef u64 hd_cpus_value;

HD_SECTION("main") int hd_main(struct xdp_md *ctx)
{
	struct hd_in *in = hd_blank();

	if (!in || !hd_input(ctx, in))
		return XDP_PASS;
	u32 choice = hd_decide(in);
	if (choice == HD_DROP)
		return XDP_DROP;
	if (choice == HD_PASS)
		return XDP_PASS;
	u64 *cpu = hd_at(hd_cpus, choice);
	if (cpu && *cpu)
		return HD_REDIRECT(hd_executor, choice, *cpu - 1);
	hd_enforced(choice, 0);
	return XDP_PASS;
}
