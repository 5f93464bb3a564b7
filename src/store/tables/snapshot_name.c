/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which names a snapshot may have. They stand where times do, in FILE@NAME and in options, and are
 * entries of a directory: so none may be taken for a time, an option, a hidden file or a path.
 */
#include "store/tables/snapshots.h"

#include "wayback/when.h"
#include <errno.h>
#include <glib.h>
#include <string.h>

static bool has_controls(const char *name)
{
    for (; *name; name = g_utf8_next_char(name)) {
        switch (g_unichar_type(g_utf8_get_char(name))) {
        case G_UNICODE_CONTROL:
        case G_UNICODE_LINE_SEPARATOR:
        case G_UNICODE_PARAGRAPH_SEPARATOR:
            return true;
        default:
            break;
        }
    }
    return false;
}

static bool reads_as_time(const char *name)
{
    int64_t now = wb_when_now();
    struct wb_time time;

    /* Digits alone are seconds since the epoch to people, too many of them or not. */
    return wb_time_parse(name, now, &time) == 0 || wb_time_parse_words(name, now, &time) == 0 ||
           strspn(name, "0123456789.") == strlen(name);
}

int wb_snapshot_name_check(const char *name, struct wb_error *why)
{
    size_t length = strlen(name);

    if (length == 0)
        return wb_error_set(why, -EINVAL, "a name may not be empty");
    if (length > WB_SNAPSHOT_NAME_MAX)
        return wb_error_set(why, -EINVAL, "a name may have %d bytes at most; this one has %zu", WB_SNAPSHOT_NAME_MAX,
                            length);
    if (!g_utf8_validate(name, -1, NULL))
        return wb_error_set(why, -EINVAL, "a name must be UTF-8");
    if (has_controls(name))
        return wb_error_set(why, -EINVAL, "a name must be one line without control characters");
    if (strchr(name, '/'))
        return wb_error_set(why, -EINVAL, "a name must not contain '/': it is one part of a path");
    if (strchr(name, '@'))
        return wb_error_set(why, -EINVAL, "a name must not contain '@': it follows one in FILE@NAME");
    if (strchr("-.~", name[0]))
        return wb_error_set(why, -EINVAL, "a name may not begin with '%c': it would be taken for %s", name[0],
                            name[0] == '-'   ? "an option"
                            : name[0] == '.' ? "a hidden file"
                                             : "a count of changes");
    if (strchr(" \t", name[0]) || strchr(" \t", name[length - 1]))
        return wb_error_set(why, -EINVAL, "a name may not begin or end with a blank");
    if (reads_as_time(name))
        return wb_error_set(why, -EINVAL,
                            "a name must not be a time: FILE@%.40s already means a time; put a word before it", name);
    return 0;
}
