/* AF_XDP sockets: the policy chooses which program in user space gets a packet, past the network stack. */
#include "xdp.h"

HD_OWN_MAP(hd_executor, HD_KIND_XSKS, 4, 4, HD_FEW * HD_MAX_QUEUES);

HD_SECTION("main") int hd_main(struct xdp_md *ctx)
{
	struct hd_in *in = hd_blank();
	u32 queue = ctx->rx_queue_index;

	if (!in || !hd_input(ctx, in))
		return XDP_PASS;
	u32 choice = hd_decide(in);
	if (choice == HD_DROP)
		return XDP_DROP;
	if (choice == HD_PASS)
		return XDP_PASS;
	if (queue < HD_MAX_QUEUES)
		return HD_REDIRECT(hd_executor, choice, choice * HD_MAX_QUEUES + queue);
	hd_enforced(choice, 0);
	return XDP_PASS;
}
