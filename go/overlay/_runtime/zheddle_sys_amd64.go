package runtime

const (
	heddleRtSigpending = 127
	heddlePrctl        = 157
	heddlePpoll        = 271
	heddleClockGettime = 228
	heddleSchedGetattr = 315
	heddleSchedSetattr = 314
)
