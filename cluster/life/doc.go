// Package life decides the life of a partition on one server: a state machine with a
// transition table, and the decisions of a standby and of an owner.
//
// A partition has one journal and one owner at a time. Each server is either its owner or
// one of its standbys, and changes between the two as long as its process lives.
//
//	           Elected        Granted          Restored           Declared
//	┌▶ Standby ──────▶ Taking ──────▶ Restoring ──────▶ Declaring ──────▶ Serving
//	│     ▲ ▲            │ Refused        │ Lost         Lost │ Ended       │ HandOver, Lost
//	│     │ └────────────┴────────────────┘            Halted │             │ Ended, Halted
//	│     │ Left                                              ▼             │
//	│     └─────────────────────────────────────────────── Leaving ◀────────┘
//	│ Reopened                    Fenced                      │
//	└─────────── Reopening ◀──────────────────────────────────┘
//
//	phase       event      next phase   when
//	Standby     Elected    Taking       this server should own the partition, and no other owns it
//	Standby     Halted     Stopped      the process ends
//	Standby     Failed     Stopped      the disk of the store failed
//	Taking      Granted    Restoring    etcd gave the ownership to this server
//	Taking      Refused    Standby      another server was first, or etcd did not answer
//	Restoring   Restored   Declaring    the scheduler has the state and runs
//	Restoring   Lost       Standby      the ownership ended while the journal was read
//	Restoring   Halted     Stopped      the process ends
//	Restoring   Failed     Stopped      the state cannot be continued
//	Declaring   Declared   Serving      etcd has the apps of the partition
//	Declaring   Lost       Leaving      the ownership ended
//	Declaring   Ended      Leaving      the scheduler failed
//	Declaring   Halted     Leaving      the process ends
//	Serving     HandOver   Leaving      another server should own the partition and is ready
//	Serving     Lost       Leaving      the ownership ended
//	Serving     Ended      Leaving      the scheduler failed
//	Serving     Halted     Leaving      the process ends
//	Leaving     Left       Standby      the journal and the store have everything; the ownership is given up
//	Leaving     Fenced     Reopening    etcd refused records, because another server owns the partition
//	Leaving     Failed     Stopped      the scheduler or the disk failed
//	Reopening   Reopened   Standby      the store is open without the refused records
//	Reopening   Failed     Stopped      the store cannot be opened
//
// An event that the table lacks for a phase is an error of the program, and stops the
// partition with it. [Run] carries out the table: each phase but Stopped has one method of
// [Effects], which works until it can return an event of that phase.
//
// A planned move takes the path of HandOver: the owner sees that another server is the
// desired owner and ready, which means that this server is near the end of the journal of
// this very ownership. The owner takes nothing new, appends what it has taken, writes its
// store and gives up the ownership. The other server takes it and replays the few records
// that are left.
package life
