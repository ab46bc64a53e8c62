package life

// Standing is what a server sees of a partition at one moment.
type Standing struct {
	Owner string // the id of the owner; "": there is none
	Epoch uint64 // of the ownership
	Want  string // the id of the desired owner, if it is live; "": none
	Ready bool   // the desired owner can take over from this ownership
}

// StandbyStep is the next step of a standby.
type StandbyStep uint8

// The steps of a standby.
const (
	// FollowOwner: apply the journal to the store.
	FollowOwner StandbyStep = iota
	// ReleaseAndFollow: give up an ownership of an earlier process of this server, for
	// which the desired owner would wait as long as this process lives. Then follow.
	ReleaseAndFollow
	// TakeIfWhole: take the partition if the journal reaches back to the store of this
	// server. If it does not, the balancer lets another server take the partition.
	TakeIfWhole
	// TakeBack: take the partition, which an earlier process of this server owns.
	TakeBack
)

// StepOfStandby decides the next step of the standby on the server self.
func StepOfStandby(s Standing, self string) StandbyStep {
	mine := s.Want == self
	switch {
	case s.Owner == "" && mine:
		return TakeIfWhole
	case s.Owner == self && mine:
		return TakeBack
	case s.Owner == self:
		return ReleaseAndFollow
	}
	return FollowOwner
}

// ReportsReady decides whether a standby tells the owner that it is ready: the standby is
// the desired owner, has all records that the journal had when it looked, and has not
// reported this ownership yet. reported is the epoch of its last report.
func ReportsReady(s Standing, self string, whole bool, reported uint64) bool {
	return s.Want == self && whole && s.Owner != "" && reported != s.Epoch
}

// OwnerStep is the next step of an owner.
type OwnerStep uint8

// The steps of an owner.
const (
	// Stay: serve on.
	Stay OwnerStep = iota
	// Yield: let the desired owner take over.
	Yield
	// Verify: ask etcd whether the ownership has ended, which a server cannot learn from
	// a write: no call reaches a partition without an owner, so it has nothing to write.
	Verify
)

// StepOfOwner decides the next step of the server self, which was given the ownership
// with that epoch.
func StepOfOwner(s Standing, self string, epoch uint64) OwnerStep {
	switch {
	case s.Epoch != epoch:
		return Verify
	case s.Want != "" && s.Want != self && s.Ready:
		return Yield
	}
	return Stay
}
