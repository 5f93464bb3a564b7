/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Fields as text (key=value) or JSON ("key":value): one set of calls, two spellings, so that
 * neither can show what the other leaves out.
 */

#include "format/format.h"
#include <stdbool.h>
#include <stdio.h>

struct wb_fields {
    FILE *out;
    bool json;
    bool more; /* something stands before on this level */
};

/* One line, which is one object. */
void wb_fields_begin(struct wb_fields *fields, FILE *out, bool json);
void wb_fields_end(struct wb_fields *fields);

/* key={...} and key=[{...} {...}]; the elements of a list have no key (NULL). */
void wb_fields_open(struct wb_fields *fields, const char *key, char bracket);
void wb_fields_close(struct wb_fields *fields, char bracket);

/* Text: the bare word, without its key. */
void wb_fields_word(struct wb_fields *fields, const char *key, const char *word);
void wb_fields_uint(struct wb_fields *fields, const char *key, uint64_t value);
void wb_fields_bool(struct wb_fields *fields, const char *key, bool value);

/* Octal in text. */
void wb_fields_mode(struct wb_fields *fields, const char *key, uint32_t mode);

/* Hexadecimal, as a string in JSON: 64 bits are more than its numbers hold everywhere. */
void wb_fields_check(struct wb_fields *fields, const char *key, uint64_t check);

/* An instant: seconds in text, integer nanoseconds in JSON. */
void wb_fields_instant(struct wb_fields *fields, const char *key, int64_t when);

/* Bytes of users: quoted. Text has \xNN for what is not UTF-8; JSON has U+FFFD there, and all of
 * the bytes in hexadecimal as "key_bytes". */
void wb_fields_bytes(struct wb_fields *fields, const char *key, const char *bytes, size_t length);

/* An id; left out if there is none. */
void wb_fields_object(struct wb_fields *fields, const char *key, struct wb_object object);
void wb_fields_attrs(struct wb_fields *fields, const char *key, const struct wb_attrs *attrs);
