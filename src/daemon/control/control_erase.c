/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * ERASE: a name, and with PRESENT what it stands for now, vanishes with all its history. The
 * present goes first, as by rm, and is recorded like that; then the records go. ERASE_NAMES: of several names the
 * present goes one after the other, each as it would by itself, and then the records of all in one pass.
 * ERASE_BEFORE: only what a name was before a moment, which differs for each name, so these go one by one.
 */
#include "daemon/control/control_erase.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include "daemon/caller/creds.h"
#include "daemon/live/ops.h"
#include "daemon/live/stage.h"
#include "daemon/past/doors.h"
#include "daemon/past/pages.h"
#include "daemon/past/past.h"
#include "daemon/past/past_access.h"
#include "daemon/past/past_node.h"
#include "daemon/system/report.h"
#include "maintain/erase/erase.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>

_Static_assert(WB_CONTROL_ERASE_NAMES_MAX * sizeof(struct wb_control_erased_name) <= WB_CONTROL_DATA_MAX,
               "a reply fits");

/* ---- the past -------------------------------------------------------------------------------- */

/* What nodes know of logs and graves is to be found out again. With the tree to ourselves. */
static void forget_hints(struct wb_session *session)
{
    struct wb_nodes *nodes = &session->nodes;

    pthread_mutex_lock(&nodes->lock);
    for (size_t i = 0; i < nodes->bucket_count; i++) {
        for (struct wb_live *live = nodes->buckets[i]; live; live = live->hash_next) {
            live->has_undo = false;
            if (wb_live_is_dir(live))
                live->dir.has_catalog = false;
            live->buried = WB_BURIED_UNKNOWN;
        }
    }
    pthread_mutex_unlock(&nodes->lock);
}

static unsigned keep_flags(unsigned flags)
{
    return (flags & WB_CONTROL_ERASE_RECURSIVE ? WB_ERASE_RECURSIVE : 0) |
           (flags & WB_CONTROL_ERASE_PRESENT ? WB_ERASE_PRESENT : 0);
}

static void begin_past(struct wb_session *session)
{
    wb_tree_own(session);
    wb_stages_end_all(session); /* what they keep may be what is erased */
}

static void end_past(struct wb_session *session)
{
    forget_hints(session);
    wb_tree_release(session);
    session->dirty = true;
    wb_control_pages_drop(session->past);
    wb_doors_drop(session);
    wb_past_renew(session);
}

static void take_result(struct wb_erasing *erase, int r)
{
    struct wb_problem why = {""};

    if (r < 0 && r != -ENOENT && r != -EISDIR && r != -EPERM) {
        wb_erase_tell(&why, r, erase->name);
        wb_report("%s", why.text);
    }
    /* What never changed has no history, and now it has none. */
    if (r == -ENOENT && erase->present && !(erase->flags & WB_CONTROL_ERASE_PRESENT))
        r = 0;
    else if (r == -ENOENT && wb_past_is_moment(erase->request->session, erase->name))
        r = -EROFS;
    if (erase->freed.all > 0)
        erase->count.bytes = erase->freed.all;
    erase->result = r;
}

/* `before`: that moment; 0: all. */
static void erase_past(struct wb_erasing *erase, int64_t before)
{
    struct wb_session *session = erase->request->session;
    struct wb_problem why = {""};
    int r;

    begin_past(session);
    r = wb_erase(session->history, erase->spot_dir, erase->name, keep_flags(erase->flags), before,
                 fuse_req_ctx(erase->request->req)->uid, &erase->count, &why);
    end_past(session);
    take_result(erase, r);
}

/* Of those that are to go; `names` has room for all. */
static void erase_pasts(const struct wb_request *request, struct wb_erasing *erases, struct wb_erase_name *names,
                        unsigned count)
{
    struct wb_session *session = request->session;
    unsigned left = 0;

    for (unsigned i = 0; i < count; i++)
        if (erases[i].result == 0)
            names[left++] = (struct wb_erase_name){.dir = erases[i].spot_dir, .name = erases[i].name};
    if (left == 0)
        return;
    begin_past(session);
    wb_erase_names(session->history, names, left, keep_flags(erases[0].flags), fuse_req_ctx(request->req)->uid);
    end_past(session);
    for (unsigned i = 0; i < count; i++) {
        if (erases[i].result != 0)
            continue;
        erases[i].count = names->count;
        take_result(&erases[i], names++->result);
    }
}

/* ---- the request ----------------------------------------------------------------------------- */

static int carry_out(const struct wb_request *request, int64_t before, struct wb_control *out)
{
    struct wb_control_erased *reply = (struct wb_control_erased *)(void *)out->data;
    struct wb_erasing erase = {.request = request, .path = request->in->path, .flags = request->in->flags};

    wb_erase_present(&erase);
    if (erase.result == 0)
        erase_past(&erase, before);
    wb_erasing_release(&erase);
    reply->objects = erase.count.objects;
    reply->bytes = erase.count.bytes;
    return erase.result;
}

int wb_control_erase_measure(const struct wb_request *request, struct wb_control *out)
{
    struct wb_control_freed *reply = (struct wb_control_freed *)(void *)out->data;
    struct wb_erasing erase = {.request = request, .path = request->in->path,
                               .flags = request->in->flags & WB_CONTROL_ERASE_FORMER};

    wb_erase_look(&erase);
    wb_erasing_release(&erase);
    *reply = (struct wb_control_freed){erase.freed.history, erase.freed.all, erase.freed.shared};
    return erase.result;
}

int wb_control_erase(const struct wb_request *request, struct wb_control *out)
{
    return carry_out(request, 0, out);
}

int wb_control_erase_before(const struct wb_request *request, struct wb_control *out)
{
    const struct wb_control *in = request->in;

    if (in->until <= 0 || in->until >= wb_store_now(request->session->store) || in->flags & WB_CONTROL_ERASE_PRESENT)
        return -EINVAL;
    return carry_out(request, in->until, out);
}

/* All of the names, or -EINVAL: flags that are none, or not the same in all. */
static int take_names(const struct wb_request *request, struct wb_erasing *erases)
{
    const unsigned same = WB_CONTROL_ERASE_RECURSIVE | WB_CONTROL_ERASE_PRESENT;
    size_t used = 0;

    for (unsigned i = 0; i < request->in->count; i++) {
        const struct wb_control_erase_name *name = wb_control_erase_name(request->in, &used);

        if (!name || name->flags & ~(same | WB_CONTROL_ERASE_FORMER))
            return -EINVAL;
        erases[i] = (struct wb_erasing){.request = request, .path = name->path, .flags = name->flags};
        if ((erases[i].flags & same) != (erases[0].flags & same))
            return -EINVAL;
    }
    return 0;
}

int wb_control_erase_names(const struct wb_request *request, struct wb_control *out)
{
    struct wb_control_erased_name *reply = (struct wb_control_erased_name *)(void *)out->data;
    unsigned count = request->in->count;
    g_autofree struct wb_erase_name *names = NULL;
    g_autofree struct wb_erasing *erases = NULL;
    int r;

    if (count == 0 || count > WB_CONTROL_ERASE_NAMES_MAX)
        return -EINVAL;
    names = g_try_new0(struct wb_erase_name, count);
    erases = g_try_new0(struct wb_erasing, count);
    if (!names || !erases)
        return -ENOMEM;
    r = take_names(request, erases);
    if (r < 0)
        return r;
    for (unsigned i = 0; i < count; i++)
        wb_erase_present(&erases[i]);
    erase_pasts(request, erases, names, count);
    for (unsigned i = 0; i < count; i++) {
        wb_erasing_release(&erases[i]);
        reply[i].objects = erases[i].count.objects;
        reply[i].bytes = erases[i].count.bytes;
        reply[i].error = (uint32_t)-wb_past_result_of_tool(request->session, erases[i].result);
    }
    out->count = count;
    return 0;
}
