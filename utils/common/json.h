/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * JSON output. Small documents are built whole with a JsonBuilder; long lists are streamed, one
 * built element at a time. Names and commands that are not UTF-8 have U+FFFD for the bytes that
 * are none.
 */

#include <json-glib/json-glib.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

void wb_json_string(JsonBuilder *builder, const char *key, const char *bytes);
void wb_json_int(JsonBuilder *builder, const char *key, int64_t value);
void wb_json_bool(JsonBuilder *builder, const char *key, bool value);

/* `when` as integer nanoseconds (key "when") and as local ISO 8601 (key "time"). */
void wb_json_when(JsonBuilder *builder, int64_t when);

/* Prints what was built on one line, without a newline, and makes the builder empty again. */
void wb_json_print(FILE *out, JsonBuilder *builder);

/* The same as text; g_free. */
char *wb_json_text(JsonBuilder *builder);

/* A string as a JSON literal with its quotes; g_free. */
char *wb_json_literal(const char *bytes);
