# A database that is not there.
import psycopg2
try: psycopg2.connect('host=127.0.0.1 port=1 dbname=x connect_timeout=2')
except psycopg2.OperationalError as e: print(str(e).strip())
print(psycopg2.__version__.split()[0], psycopg2.extensions.TRANSACTION_STATUS_IDLE)
