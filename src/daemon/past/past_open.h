/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * What an open of the past needs: the view of a file, or the listing of a directory. All opens of the same object at
 * the same T share one, by whatever name they came to it, and what it costs counts for each user who has it open
 * (shares.h). It ends with the last of them. While versions of a file are being forgotten nothing is shared.
 */

#include "daemon/past/past_node.h"

struct wb_past_content {
    unsigned refs;   /* of handles; under past->lock */
    bool listed;     /* in past->contents; likewise */
    struct wb_object object;
    int64_t when;
    struct wb_file_view *view;   /* a file */
    struct wb_past_dir *listing; /* a directory */
    struct wb_holders holders;
    enum wb_share_kind kind;     /* what it takes, */
    uint64_t amount;             /* and how much */
};

/* For `uid`, who holds it until wb_past_content_close. 0, -EMFILE or -ENOMEM: this user has their share; or -errno. */
int wb_past_content_open(struct wb_session *session, struct wb_past_node *node, uid_t uid,
                         struct wb_past_content **ret);
void wb_past_content_close(struct wb_session *session, struct wb_past_content *content, uid_t uid);

/* Whether an open now would get the same. */
bool wb_past_content_is_good(struct wb_past_content *content);

void wb_past_contents_init(struct wb_past *past);
void wb_past_contents_deinit(struct wb_past *past);

/* With past->lock held: opens from now on make their own. `object` NULL: of everything. */
void wb_past_contents_retire(struct wb_past *past, const struct wb_object *object);
