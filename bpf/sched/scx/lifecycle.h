/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* What becomes of an enclave whose agent or guardian is gone or hangs. */
#ifndef HEDDLE_SCX_LIFECYCLE_H
#define HEDDLE_SCX_LIFECYCLE_H

#include "words.h"

/* Whether the enclave's threads run without an agent, first in, first out. Asked when one of them can run, and when one of its CPUs
 * has nothing to run. An enclave that was removed with threads in it counts as one. */
static __always_inline bool hd_is_orphan(const struct hd_enclave *e)
{
	return e->state == HD_ENCLAVE_ORPHAN || e->state == HD_ENCLAVE_FREE;
}

/* Something for a CPU of an orphaned enclave to run: what was parked before it became one. New ones go to the kernel's global
 * queue (hd_plain), which the kernel empties by itself. */
static __always_inline void hd_orphan_dispatch(__u32 cpu, __u32 enclave)
{
	for (__u32 bucket = 0; bucket < HD_BUCKETS; bucket++)
		if (hd_move_to_local(HD_PARKING(enclave, bucket)))
			return;
}

#endif
