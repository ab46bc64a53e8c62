// Package slotmover moves the slots of an app between partitions, as the balancer has
// decided.
//
// A move has three steps, each of which can be repeated: the partition freezes the slot and
// numbers the move; the owner of the other partition takes the items of the slot, which its
// journal records; the first partition forgets the slot. After a crash the next owner of
// either partition continues.
package slotmover
