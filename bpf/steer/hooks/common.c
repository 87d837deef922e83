/* What every policy shares with Heddle and with the program that it schedules. */
#include "hooks.h"

HD_OWN_MAP(hd_counts, HD_KIND_PER_CPU, 4, sizeof(struct hd_count), HD_FEW + 1);

/* The present input. */
HD_OWN_MAP(hd_inputs, HD_KIND_PER_CPU, 4, sizeof(struct hd_in), 1);

HD_OWN_MAP(hd_lines, HD_KIND_ARRAY, 4, sizeof(struct hd_line), HD_FEW);

const volatile struct hd_room hd_room_constants HD_SECTION(".hd.hd_room_constants") = {HD_FEW};

const volatile struct hd_control hd_control HD_SECTION(".hd.hd_control") = {1};
