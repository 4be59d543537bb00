CREATE TABLE accounts (
    id      text   PRIMARY KEY,
    balance bigint NOT NULL
);

CREATE TABLE invoices (
    id         text    PRIMARY KEY,
    account_id text    NOT NULL REFERENCES accounts (id),
    amount     bigint  NOT NULL,
    paid       boolean NOT NULL DEFAULT false
);

-- One row for each charge. Nothing here prevents two charges of one invoice.
CREATE TABLE charges (
    invoice_id text   NOT NULL REFERENCES invoices (id),
    amount     bigint NOT NULL
);
