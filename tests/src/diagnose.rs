use anyhow::Result;

use crate::Session;

/// A function that runs a statement, catches its error, and returns all fields of the error.
const DIAGNOSE: &str = "
    CREATE FUNCTION diagnose(statement text) RETURNS text LANGUAGE plpgsql AS $$
    DECLARE code text; message text; detail text; hint text; context text;
        col text; con text; typ text; tab text; sch text;
    BEGIN
        EXECUTE statement;
        RETURN 'no error';
    EXCEPTION WHEN OTHERS THEN
        GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL,
            hint = PG_EXCEPTION_HINT, context = PG_EXCEPTION_CONTEXT, col = COLUMN_NAME, con = CONSTRAINT_NAME,
            typ = PG_DATATYPE_NAME, tab = TABLE_NAME, sch = SCHEMA_NAME;
        RETURN concat_ws(' | ', code, message, detail, hint, col, con, typ, tab, sch, context);
    END $$";

/// Makes the function for [`diagnose`].
///
/// # Errors
/// The statement fails.
pub fn make_diagnose(session: &mut Session) -> Result<()> {
    Ok(session.execute(DIAGNOSE)?)
}

/// All fields of a statement's error in one line; "no error" if it succeeds.
///
/// # Errors
/// The session is lost.
pub fn diagnose(session: &mut Session, statement: &str) -> Result<String> {
    let statement = statement.replace('\'', "''");
    session.value(&format!("SELECT diagnose('{statement}')"))
}
