package simulated

// BreakJournal makes every later write to a world's state file fail.
func BreakJournal(w *World) { _ = w.journal.file.Close() }

// Compact shortens a world's state file now.
func Compact(w *World) error { return w.compact() }
