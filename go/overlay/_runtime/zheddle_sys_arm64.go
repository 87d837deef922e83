package runtime

const (
	heddleRtSigpending = 136
	heddlePrctl        = 167
	heddlePpoll        = 73
	heddleClockGettime = 113
	heddleSchedGetattr = 275
	heddleSchedSetattr = 274
)
