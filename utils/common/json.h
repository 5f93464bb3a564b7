/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * JSON output, as docs/json.md describes it: each line is one object, a "document", with the version of the schema and
 * with the errors of the work that it is about.
 *
 * A tool builds the members of a document with a JsonBuilder and prints it with wb_json_document, or, if it has a long
 * list, with wb_json_list_*. Errors (wb_cli_fail, wb_cli_usage) are added to the next document that ends; those that
 * are left at the end are a document of their own. A tool with several PATHs calls wb_json_separate between them. A
 * tool that prints entries as it finds them prints each with wb_json_entry.
 */

#include <json-glib/json-glib.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* ---- members --------------------------------------------------------------------------------- */

/* The bytes of a user, or a word of ours. Bytes that are not UTF-8 are U+FFFD; then "KEY_bytes" is all in base64. */
void wb_json_string(JsonBuilder *builder, const char *key, const char *bytes);

/* An array; if one of them is not UTF-8, "KEY_bytes" is an array with base64 for those that are not, else null. */
void wb_json_strings(JsonBuilder *builder, const char *key, const char *const *strings);

void wb_json_int(JsonBuilder *builder, const char *key, int64_t value);
void wb_json_bool(JsonBuilder *builder, const char *key, bool value);
void wb_json_null(JsonBuilder *builder, const char *key);

/* The time of the object itself: "time" in ISO 8601 and "epoch", both strings that each TIME accepts. */
void wb_json_when(JsonBuilder *builder, int64_t when);

/* Another time of it: an object with these two; null for 0. */
void wb_json_time(JsonBuilder *builder, const char *key, int64_t when);

/* A string as a JSON literal with its quotes; g_free. */
char *wb_json_literal(const char *bytes);

/* ---- documents ------------------------------------------------------------------------------- */

/* Each of these takes the object that was built and makes the builder empty again. */

void wb_json_document(JsonBuilder *builder);

/* A line of many; errors so far are printed before it, as a document of their own. */
void wb_json_entry(JsonBuilder *builder);

/* The same line as text, with its newline, for a tool that prints it later; g_free. */
char *wb_json_entry_text(JsonBuilder *builder);

/* A document whose member `key` is an array that is printed element by element. `tail`: the members behind it, or
 * NULL. */
void wb_json_list_begin(JsonBuilder *head, const char *key);
void wb_json_list_add(JsonBuilder *element);
void wb_json_list_end(JsonBuilder *tail);

/* ---- errors ---------------------------------------------------------------------------------- */

/* Called by common/cli only: --json was given, and documents go to `out`. */
void wb_json_start(FILE *out);

/* Notes an error if --json was given. `kind`: "failed", "usage" or "stopped"; `message` has the form "problem (reason);
 * remedy"; `path` may be NULL. */
void wb_json_error(const char *kind, const char *path, const char *message);

/* Prints the errors so far as a document of their own, if there are any: later documents are about something else. */
void wb_json_separate(void);

/* Ends an open list, and prints the errors that are left. */
void wb_json_finish(void);
