/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What was changed behind the mount. No record tells of it; but ctime, which cannot be set, tells when an object was
 * changed, renamed or linked last, and each record what it was before. So where it is later than `since`, and
 * than the record before, somebody else made it so, and the copy may have anything else.
 *
 * Where that is not so, more is sent than is needed, and nothing is wrong. So what is small is sent in doubt; what is
 * large only where no slow disk, and no process that was stopped between record and change, is a likelier reason.
 */
#include "transfer/send/send.h"

#include "store/identity/identities.h"
#include "store/parts.h"
#include "store/tables/received.h"
#include "wayback/when.h"
#include <fcntl.h>
#include <sys/stat.h>

#define TICK (WB_WHEN_SECOND / 50) /* of the clock of ctime, and more */
#define DELAY (10 * WB_WHEN_SECOND)
#define LARGE (UINT64_C(16) << 20)

/* What a copy received was changed by who received it, and a tree that was bound anew, by who copied it. */
int64_t wb_sending_floor(const struct wb_sending *sending)
{
    static const char *const names[] = {WB_RECEIVED_NAME, WB_IDENTITIES_NAME};
    int64_t floor = sending->since;
    struct stat st;

    for (unsigned i = 0; i < G_N_ELEMENTS(names); i++)
        if (fstatat(sending->store->dir_fd, names[i], &st, AT_SYMLINK_NOFOLLOW) == 0)
            floor = MAX(floor, st.st_mtim.tv_sec * WB_WHEN_SECOND + st.st_mtim.tv_nsec);
    return floor;
}

void wb_sending_note_time(const struct wb_sending *sending, struct wb_sent *sent, int64_t when, int64_t ctime)
{
    struct wb_sent_time time = {when, ctime};

    if (sending->since == 0)
        return; /* everything is told */
    if (!sent->times)
        sent->times = g_array_new(FALSE, FALSE, sizeof(time));
    g_array_append_val(sent->times, time);
}

static int by_when(const void *a, const void *b)
{
    const struct wb_sent_time *x = a, *y = b;

    return x->when < y->when ? -1 : x->when > y->when;
}

/* Whether some ctime is later than what was recorded before by more than `slack`. */
static bool is_later(const struct wb_sending *sending, const struct wb_sent *sent, int64_t ctime, int64_t slack)
{
    int64_t explained = sending->floor;

    if (sent && sent->times)
        g_array_sort(sent->times, by_when);
    for (guint i = 0; sent && sent->times && i < sent->times->len; i++) {
        const struct wb_sent_time *time = &g_array_index(sent->times, struct wb_sent_time, i);

        if (time->ctime > explained + slack)
            return true;
        explained = MAX(explained, time->when);
    }
    return ctime > explained + slack;
}

bool wb_sending_is_behind(const struct wb_sending *sending, const struct wb_sent *sent, const struct wb_attrs *attrs)
{
    bool large = S_ISREG(attrs->mode) && attrs->size > LARGE;

    return sending->since > 0 && is_later(sending, sent, attrs->ctime, large ? DELAY : TICK);
}

bool wb_sending_may_be_foreign(const struct wb_sending *sending, const struct wb_sent *sent, struct wb_object object,
                               const struct wb_attrs *attrs)
{
    /* A rename leaves its time of modification alone. */
    return attrs->ctime > attrs->mtime + TICK || object.birth > sending->floor ||
           is_later(sending, sent, attrs->ctime, DELAY);
}
