/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a check finds: reported to the listener, counted, and noted of each object. */
#include "check/checking.h"

#include "store/identity/identities.h"
#include <stdarg.h>
#include <stdio.h>

static void report_finding(struct wb_checking *checking, enum wb_check_state state, const char *code,
                           struct wb_check_where where, const char *remedy, const char *text)
{
    struct wb_check_finding finding = {state,    code,     where.file, where.path,
                                       where.from, where.to, text,       remedy ? remedy : ""};

    checking->result.wrong += state == WB_CHECK_WRONG;
    checking->result.lost += state == WB_CHECK_LOST;
    checking->result.repaired += state == WB_CHECK_REPAIRED;
    if (checking->listener && checking->listener->found)
        checking->listener->found(&finding, checking->listener->data);
}

void wb_check_report(struct wb_checking *checking, enum wb_check_state state, const char *code,
                     struct wb_check_where where, const char *remedy, const char *format, ...)
{
    g_autofree char *text = NULL;
    va_list arguments;

    va_start(arguments, format);
    text = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    report_finding(checking, state, code, where, remedy, text);
}

void wb_check_report_mended(struct wb_checking *checking, int r, const char *code, struct wb_check_where where,
                            const char *done, const char *format, ...)
{
    g_autofree char *text = NULL, *failed = NULL;
    va_list arguments;

    va_start(arguments, format);
    text = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    if (r < 0)
        failed = g_strdup_printf("could not be repaired: %s", g_strerror(-r));
    report_finding(checking, r < 0 ? WB_CHECK_WRONG : WB_CHECK_REPAIRED, code, where, failed ? failed : done, text);
}

bool wb_check_progress(struct wb_checking *checking, uint64_t files, uint64_t bytes)
{
    if (checking->listener && checking->listener->progress &&
        !checking->listener->progress(files, bytes, checking->listener->data))
        checking->stopped = true;
    return !checking->stopped;
}

bool wb_check_mends(const struct wb_checking *checking, bool all)
{
    return checking->flags & (all ? WB_CHECK_REPAIR_ALL : WB_CHECK_REPAIR | WB_CHECK_REPAIR_ALL);
}

bool wb_check_is_unsettled(const struct wb_checking *checking, int64_t when)
{
    for (unsigned i = 0; i < checking->unsettled_count; i++)
        if (checking->unsettled[i] == when)
            return true;
    return false;
}

/* ---- objects ----------------------------------------------------------------------------------- */

static guint known_hash(const void *key)
{
    const struct wb_object *object = key;

    return (guint)((object->ino ^ (uint64_t)object->birth * 31) * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

static gboolean known_equal(const void *a, const void *b)
{
    return wb_object_equal(*(const struct wb_object *)a, *(const struct wb_object *)b);
}

static void known_free(void *data)
{
    struct wb_known *known = data;

    g_free(known->path);
    g_free(known);
}

GHashTable *wb_check_objects_new(void)
{
    return g_hash_table_new_full(known_hash, known_equal, NULL, known_free);
}

struct wb_known *wb_check_known(struct wb_checking *checking, struct wb_object object)
{
    struct wb_known *known = g_hash_table_lookup(checking->objects, &object);

    if (known)
        return known;
    known = g_try_new0(struct wb_known, 1);
    if (known) {
        known->object = object;
        g_hash_table_insert(checking->objects, &known->object, known);
    }
    return known;
}

int wb_check_stat(const struct wb_checking *checking, int dir_fd, const char *name, struct wb_object *object,
                  struct wb_attrs *attrs, struct stat *st)
{
    int r = wb_object_stat(NULL, dir_fd, name, object, attrs, st);

    return r < 0 ? r : wb_identities_map(checking->identities, object);
}
