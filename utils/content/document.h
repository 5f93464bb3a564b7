/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Reads the JSON documents of other tools (docs/json.md). */

#include <json-glib/json-glib.h>
#include <stdint.h>

/* json_object_unref; NULL: it is none. */
JsonObject *document_parse(const char *line);

/* The bytes of a text, also if they are not UTF-8; g_free. NULL: there is no such member. */
char *document_text(JsonObject *object, const char *key);

/* A word or a number; NULL or 0: there is none. */
const char *document_word(JsonObject *object, const char *key);
int64_t document_int(JsonObject *object, const char *key);

/* A member that is an object or an array; NULL: it is not there. */
JsonObject *document_object(JsonObject *object, const char *key);
JsonArray *document_array(JsonObject *object, const char *key);

/* An instant, as nanoseconds; 0: none. */
int64_t document_instant(JsonObject *object, const char *key);

/* The message of the first error, printable; g_free. NULL: none. */
char *document_error(JsonObject *object);
