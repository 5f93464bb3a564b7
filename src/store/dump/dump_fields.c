/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "store/dump/dump_fields.h"

#include "wayback/when.h"
#include <glib.h>
#include <inttypes.h>

void wb_fields_begin(struct wb_fields *fields, FILE *out, bool json)
{
    *fields = (struct wb_fields){.out = out, .json = json};
    if (json)
        fputc('{', out);
}

void wb_fields_end(struct wb_fields *fields)
{
    fputs(fields->json ? "}\n" : "\n", fields->out);
}

static void put_separator(struct wb_fields *fields)
{
    if (fields->more)
        fputc(fields->json ? ',' : ' ', fields->out);
    fields->more = true;
}

static void put_key(struct wb_fields *fields, const char *key)
{
    put_separator(fields);
    if (key)
        fprintf(fields->out, fields->json ? "\"%s\":" : "%s=", key);
}

void wb_fields_open(struct wb_fields *fields, const char *key, char bracket)
{
    put_key(fields, key);
    fputc(bracket, fields->out);
    fields->more = false;
}

void wb_fields_close(struct wb_fields *fields, char bracket)
{
    fputc(bracket, fields->out);
    fields->more = true;
}

void wb_fields_word(struct wb_fields *fields, const char *key, const char *word)
{
    if (fields->json) {
        put_key(fields, key);
        fprintf(fields->out, "\"%s\"", word);
    } else {
        put_separator(fields);
        fputs(word, fields->out);
    }
}

void wb_fields_uint(struct wb_fields *fields, const char *key, uint64_t value)
{
    put_key(fields, key);
    fprintf(fields->out, "%" PRIu64, value);
}

void wb_fields_bool(struct wb_fields *fields, const char *key, bool value)
{
    put_key(fields, key);
    fputs(value ? "true" : "false", fields->out);
}

void wb_fields_mode(struct wb_fields *fields, const char *key, uint32_t mode)
{
    put_key(fields, key);
    fprintf(fields->out, fields->json ? "%" PRIu32 : "%06" PRIo32, mode);
}

void wb_fields_check(struct wb_fields *fields, const char *key, uint64_t check)
{
    put_key(fields, key);
    fprintf(fields->out, fields->json ? "\"%016" PRIx64 "\"" : "%016" PRIx64, check);
}

void wb_fields_instant(struct wb_fields *fields, const char *key, int64_t when)
{
    char text[WB_WHEN_TEXT_MAX];

    put_key(fields, key);
    if (fields->json)
        fprintf(fields->out, "%" PRId64, when);
    else
        fputs(wb_when_print_epoch(when, text), fields->out);
}

/* The length of the UTF-8 character that may be printed unchanged; 0: it must be escaped. */
static size_t plain_length(const struct wb_fields *fields, const char *bytes, size_t length)
{
    gunichar c = g_utf8_get_char_validated(bytes, (gssize)length);

    if (c == (gunichar)-1 || c == (gunichar)-2 || c < ' ' || c == 0x7f)
        return 0;
    /* Characters that a terminal or a pager could take for a command or for the end of the line. */
    if (!fields->json && (g_unichar_iscntrl(c) || c == 0x2028 || c == 0x2029))
        return 0;
    return (size_t)(g_utf8_next_char(bytes) - bytes);
}

static void put_escaped(struct wb_fields *fields, const char *bytes, size_t length)
{
    size_t n;

    for (size_t i = 0; i < length; i += n) {
        unsigned char c = (unsigned char)bytes[i];

        n = plain_length(fields, bytes + i, length - i);
        if (n == 0) {
            n = 1;
            if (fields->json && c >= 0x80)
                fputs("\\ufffd", fields->out);
            else if (fields->json)
                fprintf(fields->out, "\\u%04x", c);
            else
                fprintf(fields->out, "\\x%02x", c);
        } else if (c == '"' || c == '\\') {
            fprintf(fields->out, "\\%c", c);
        } else {
            fwrite(bytes + i, 1, n, fields->out);
        }
    }
}

void wb_fields_bytes(struct wb_fields *fields, const char *key, const char *bytes, size_t length)
{
    put_key(fields, key);
    fputc('"', fields->out);
    put_escaped(fields, bytes, length);
    fputc('"', fields->out);
    if (!fields->json || length == 0 || g_utf8_validate_len(bytes, length, NULL))
        return;

    put_separator(fields);
    fprintf(fields->out, "\"%s_bytes\":\"", key);
    for (size_t i = 0; i < length; i++)
        fprintf(fields->out, "%02x", (unsigned char)bytes[i]);
    fputc('"', fields->out);
}

void wb_fields_object(struct wb_fields *fields, const char *key, struct wb_object object)
{
    char text[WB_OBJECT_TEXT_MAX];

    if (wb_object_is_none(object))
        return;
    wb_object_print(object, text);
    put_key(fields, key);
    fprintf(fields->out, fields->json ? "\"%s\"" : "%s", text);
}

void wb_fields_attrs(struct wb_fields *fields, const char *key, const struct wb_attrs *attrs)
{
    wb_fields_open(fields, key, '{');
    wb_fields_mode(fields, "mode", attrs->mode);
    wb_fields_uint(fields, "uid", attrs->uid);
    wb_fields_uint(fields, "gid", attrs->gid);
    wb_fields_uint(fields, "nlink", attrs->nlink);
    wb_fields_uint(fields, "size", attrs->size);
    wb_fields_uint(fields, "rdev", attrs->rdev);
    if (attrs->blocks > 0)
        wb_fields_uint(fields, "blocks", attrs->blocks - 1);
    wb_fields_instant(fields, "atime", attrs->atime);
    wb_fields_instant(fields, "mtime", attrs->mtime);
    wb_fields_instant(fields, "ctime", attrs->ctime);
    wb_fields_close(fields, '}');
}
