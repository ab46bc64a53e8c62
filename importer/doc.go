// Package importer turns the jobs of other schedulers into documents. It is pure: it gets rows
// of tables or the text of a file, and returns documents, files of scripts and a report that
// has one line for each field of the source. It fetches nothing and changes nothing.
//
// All jobs are paused, and every document is valid: what a document cannot say is in the
// report. For each schedule the report compares the next times by the rule of the source,
// which package fires computes, with those of the document.
package importer
